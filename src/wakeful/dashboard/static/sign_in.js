// One-time links: /sign-in#wl_TOKEN. The fragment reaches no server and no log; the form sends it once.

import { forgetOnSignOut } from "./drafts.js";
import { nameZone } from "./time.js";

nameZone();

const token = location.hash.slice(1);
if (/^wl_[\w-]+$/.test(token)) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.getElementById("sign-in");
  const field = document.getElementById("key");
  field.value = token;
  // A link must not replace a session without a click: it may come from another person.
  if ("signedIn" in form.dataset) {
    const notice = document.getElementById("link");
    notice.textContent = "This link signs in with another session. To use it, press Sign in.";
    notice.hidden = false;
    form.querySelector("button").focus();
  } else {
    form.requestSubmit();
  }
}

forgetOnSignOut();
