"""Threads and an executor that run loops of the same function at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

lock, results = threading.Lock(), []


def work(n):
    total = 0
    for i in range(200):
        total += i * n
        if i % 50 == 0:
            with lock:
                results.append(n)
    return total


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with ThreadPoolExecutor(3) as pool:
    print(sorted(pool.map(work, range(5))))
print(sorted(results))
