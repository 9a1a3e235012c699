// The five text nodes with the least contrast to what is behind them, and how many were looked at.
(() => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const parse = (color) => {
    context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((value, i) => value * top[3] + under[i] * (1 - top[3]));
  const light = (color) => {
    const [r, g, b] = color.map((value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  function behind(element) {
    const chain = [];
    for (let node = element; node; node = node.parentElement) chain.unshift(parse(getComputedStyle(node).backgroundColor));
    return chain.reduce((under, top) => over(top, under), [255, 255, 255]);
  }
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest('script, style, .sr, .skip, .plot-box, [hidden]') || !element.getClientRects().length) continue;
    const back = behind(element), front = over(parse(getComputedStyle(element).color), back);
    const [a, b] = [light(front), light(back)].sort((p, q) => q - p);
    found.push([(a + 0.05) / (b + 0.05), node.textContent.trim().slice(0, 60), element.className]);
  }
  return found.sort((p, q) => p[0] - q[0]).slice(0, 5).concat([['count', found.length]]);
})()
