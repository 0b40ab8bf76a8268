// The page: who rates is known by the part of the address after the #, which no server log ever sees.

import { Asking, Refused } from "./asking.js";
import { made } from "./answers.js";
import { Task } from "./task.js";

const $ = (id) => document.getElementById(id);
let asking = null;
let study = null;
let task = null;
let number = 0;
let loading = false;

function trouble(line) {
  $("trouble").textContent = line;
  $("trouble").hidden = !line;
}

function progress({ items, done, next }) {
  Object.assign(study, { items, done, next });
  $("progress").max = items;
  $("progress").value = done;
  $("place").textContent = number > items ? `${done} of ${items} done` : `Item ${number} of ${items}, ${done} done`;
  document.title = `Rate: ${done} of ${items}`;
}

// Go to an item. Until it is there the one before it stays, and takes no answers.
async function show(wanted) {
  if (loading) return;
  loading = true;
  task?.leave();
  $("main").inert = true;
  try {
    await asking.waiting; // what was clicked is known to the server before anything is read back
    const place = Math.max(1, wanted);
    const told = place > study.items ? null : await asking.insist(`api/tasks/${place}`);
    number = place;
    draw(told);
  } finally {
    loading = $("main").inert = false;
  }
  focus();
}

function draw(told) {
  task?.close();
  if (told === null) return end();
  task = new Task(told, study.questions, save, () => asking.file(`api/tasks/${told.number}/media`));
  $("main").replaceChildren(task.element);
  $("back").disabled = number === 1;
  $("next").disabled = false;
  $("saved").textContent = "";
  progress(study);
  if (task.open >= 0) task.go(task.open, false);
  window.scrollTo(0, 0);
}

function focus() {
  if (task) task.cells[task.current].focus({ preventScroll: true });
  else $("main").querySelector("button")?.focus();
}

function end() {
  task = null;
  const open = study.done < study.items;
  const words = open
    ? [`${study.items - study.done} items still have open questions.`, "Go to the first of them"]
    : ["Everything is rated. Thank you!", "Look at the first again"];
  const button = made("button", { type: "button", className: "strong", textContent: words[1] });
  button.addEventListener("click", () => show(open ? study.next : 1).catch(refused));
  $("main").replaceChildren(made("section", { className: "end" }, made("p", { textContent: words[0] }), button));
  $("back").disabled = false;
  $("next").disabled = true;
  progress(study);
}

function save(place, output, question, value) {
  $("saved").textContent = "Saving …";
  asking.send(`api/tasks/${place}/rating`, "PUT", { output, question, value }).then((told) => {
    progress(told);
    if (asking.unsent <= 1) $("saved").textContent = "Saved";
  }).catch(refused);
}

async function undo() {
  if (loading) return;
  task?.leave();
  const told = await asking.send("api/undo", "POST");
  if (told.number === null) {
    $("saved").textContent = "Nothing to undo";
    return;
  }
  Object.assign(study, told);
  await show(told.number);
  $("saved").textContent = "Undone";
}

function next() {
  if (task && task.open >= 0) return task.go(task.open);
  if (number <= study.items) show(number + 1).catch(refused);
}

function help() {
  $("help").hidden = !$("help").hidden;
  $("keys").setAttribute("aria-expanded", String(!$("help").hidden));
}

function keys(event) {
  if (event.altKey || event.metaKey || event.isComposing || !study || loading) return;
  if (event.ctrlKey) {
    if (event.key.toLowerCase() === "z") act(event, () => undo().catch(refused));
    return;
  }
  const inside = event.target.closest(".task, main, body") !== null;
  const pressing = event.target.closest("nav, .end") !== null && (event.key === " " || event.key === "Enter");
  if (!inside || pressing) return;
  if (event.key === "Enter" && event.target.matches(".option")) return;
  if (event.target.matches("audio") && event.key !== "p") return; // it has keys of its own
  if (task?.key(event)) return event.preventDefault();
  const acts = {
    ArrowDown: () => task?.go(task.current + 1),
    ArrowUp: () => task?.go(task.current - 1),
    ArrowRight: () => show(Math.min(number + 1, study.items + 1)).catch(refused),
    ArrowLeft: () => number > 1 && show(number - 1).catch(refused),
    " ": next,
    Enter: next,
    p: () => task?.media?.play(),
    u: () => undo().catch(refused),
    "?": help,
  };
  const moves = event.repeat && !event.key.startsWith("Arrow"); // a key that is held is pressed once
  if (event.key in acts) act(event, moves ? () => {} : acts[event.key]);
}

function act(event, what) {
  event.preventDefault();
  what();
}

function refused(error) {
  if (!(error instanceof Refused)) throw error;
  trouble(error.message);
  $("saved").textContent = "";
  if (error.status === 401) $("main").replaceChildren(made("p", { className: "end", textContent: "This page opens by a rater's own link." }));
}

async function start() {
  asking = new Asking(location.hash.slice(1), trouble);
  try {
    study = await asking.insist("api/study");
    $("turn").hidden = false;
    await show(study.next);
  } catch (error) {
    refused(error);
  }
}

$("back").addEventListener("click", () => show(number - 1).catch(refused));
$("next").addEventListener("click", next);
$("undo").addEventListener("click", () => undo().catch(refused));
$("keys").addEventListener("click", help);
document.addEventListener("keydown", keys);
document.addEventListener("keyup", (event) => { // space goes on; it does not press what it leaves behind
  if (event.key === " " && event.target.closest?.(".task")) event.preventDefault();
});
window.addEventListener("hashchange", () => location.reload());
window.addEventListener("beforeunload", (event) => { if (asking?.unsent) event.preventDefault(); });
start();
