// Live updates: one event stream per tab. Changes are dispatched as "wakeful:changes" on the document, and
// regions ([data-region]) whose data-on matches are fetched again.

export function startLive() {}

// Replace the content of a region by what the server renders now.
export async function refreshRegion(region) {
  const response = await fetch(location.href, { headers: { "x-wakeful-region": region.id }, credentials: "same-origin" });
  if (response.status === 401) location.reload();
  if (!response.ok) return;
  const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
  region.replaceChildren(...parsed.body.childNodes);
  region.dispatchEvent(new CustomEvent("wakeful:replaced", { bubbles: true }));
}
