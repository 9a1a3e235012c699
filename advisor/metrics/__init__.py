"""Gaps, causes, layers and launch statistics: tables in, tables and values out.

`gaps(timeline)` is the table the rest stands on; `device_summary` adds up one device over a window; `launch_table`
has one row a GPU item with its api, latency, queue and issue time.
"""

from advisor.metrics.gaps import LONG_GAP_NS, DeviceIdle, device_idle, gaps
from advisor.metrics.launches import launch_stats, launch_table, queue_depth
from advisor.metrics.summary import device_summary, kernel_rows

__all__ = [
    "LONG_GAP_NS",
    "DeviceIdle",
    "device_idle",
    "device_summary",
    "gaps",
    "kernel_rows",
    "launch_stats",
    "launch_table",
    "queue_depth",
]
