// The frame of every page: menu on a phone, theme, and form filters.

import { root } from "./addresses.js";

export function startShell() {
  const button = document.querySelector("[data-menu]");
  const navigation = document.getElementById("navigation");
  const show = (open) => {
    navigation?.classList.toggle("open", open);
    button?.setAttribute("aria-expanded", String(open));
  };
  button?.addEventListener("click", () => show(!navigation.classList.contains("open")));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && navigation?.classList.contains("open")) {
      show(false);
      button.focus();
    }
  });
  document.querySelector("[data-theme-toggle]")?.addEventListener("click", toggleTheme);
  // Filters apply when a control changes; without JavaScript their form has a button.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-auto]");
    if (form && event.target.matches("select, input[type=checkbox], input[type=date]")) form.requestSubmit();
  });
}

export function toggleTheme() {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = dark ? "light" : "dark";
  document.cookie = `wakeful_theme=${dataset.theme}; path=${root}/; max-age=31536000; samesite=strict`;
}

export function signOut() {
  document.querySelector("form[data-sign-out]").requestSubmit();
}
