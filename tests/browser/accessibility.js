// Return the accessibility problems of the page: labels, names, headings, contrast, focus order, ids.
() => {
  const problems = [];
  const visible = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;
  const describe = (e) => `<${e.tagName.toLowerCase()}${e.id ? " id=" + e.id : ""} class="${e.getAttribute("class") ?? ""}"> ${(e.textContent ?? "").trim().slice(0, 40)}`;
  const nameOf = (e) => {
    const by = (e.getAttribute("aria-labelledby") ?? "").split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const labels = [...(e.labels ?? [])].map((l) => l.textContent).join(" ");
    return (by.trim() || e.getAttribute("aria-label") || labels.trim() || e.textContent.trim() || e.title || e.getAttribute("alt") || "").trim();
  };
  if (!document.documentElement.lang) problems.push("no lang");
  if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
  let level = 0;
  for (const h of document.querySelectorAll("h1,h2,h3,h4,h5")) {
    if (!visible(h)) continue;
    const next = Number(h.tagName[1]);
    if (next > level + 1) problems.push(`heading skips a level: ${describe(h)}`);
    level = next;
  }
  const ids = new Set();
  for (const e of document.querySelectorAll("[id]")) {
    if (ids.has(e.id)) problems.push(`id twice: ${e.id}`);
    ids.add(e.id);
  }
  for (const e of document.querySelectorAll("input:not([type=hidden]),select,textarea")) {
    const labels = [...(e.labels ?? [])].map((l) => l.textContent.trim()).join("");
    if (visible(e) && !labels && !e.getAttribute("aria-label") && !e.getAttribute("aria-labelledby")) problems.push(`control without label: ${e.name || e.id} ${describe(e)}`);
  }
  for (const e of document.querySelectorAll("button,a[href],summary,[role=button],[role=tab]")) {
    if (visible(e) && !nameOf(e)) {
      if (!e.querySelector("svg[aria-label],title,img[alt]")) problems.push(`no name: ${describe(e)} ${e.outerHTML.slice(0, 80)}`);
    }
  }
  for (const e of document.querySelectorAll("[tabindex]")) if (Number(e.getAttribute("tabindex")) > 0) problems.push(`positive tabindex: ${describe(e)}`);
  for (const e of document.querySelectorAll("svg[role=img]")) if (!e.getAttribute("aria-label")) problems.push(`svg without label: ${describe(e)}`);
  for (const e of document.querySelectorAll("table thead th")) if (visible(e) && !e.getAttribute("scope")) problems.push(`th without scope: ${describe(e)}`);
  for (const e of document.querySelectorAll("[aria-controls],[aria-describedby],[aria-labelledby]")) {
    for (const attribute of ["aria-controls", "aria-describedby", "aria-labelledby"]) {
      for (const id of (e.getAttribute(attribute) ?? "").split(/\s+/).filter(Boolean)) if (!document.getElementById(id)) problems.push(`${attribute} to nothing: ${id}`);
    }
  }
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colours = new Map();
  const rgba = (text) => {
    if (!colours.has(text)) colours.set(text, read(text));
    return colours.get(text);
  };
  const read = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const d = canvas.getImageData(0, 0, 1, 1).data;
    return [d[0], d[1], d[2], d[3] / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const background = (e) => {
    const stack = [];
    for (let at = e; at; at = at.parentElement) stack.push(rgba(getComputedStyle(at).backgroundColor));
    return stack.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || seen.has(e) || !visible(e) || e.closest("svg,[disabled],[aria-disabled=true],.visually-hidden,option,.skip-link")) continue;
    seen.add(e);
    const style = getComputedStyle(e);
    const behind = background(e);
    const [a, b] = [luminance(over(rgba(style.color), behind)), luminance(behind)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${describe(e)}`);
  }
  return problems;
}
