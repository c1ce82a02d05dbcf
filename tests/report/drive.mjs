// Uses a report's every control: node drive.mjs OPTIONS, a JSON object. Prints what it saw as JSON.
import { opened } from "./browser.mjs";

const options = JSON.parse(process.argv[2]);
const { find, pictures } = options;

const found = await opened(options, async (page, notes) => {
  const boxes = (pane) => page.evaluate((name) => [left, right][["left", "right"].indexOf(name)].shown().length, pane);
  const scale = () => page.evaluate(() => right.scale);
  const texts = {};
  for (const id of await page.locator("nav button").evaluateAll((tabs) => tabs.map((tab) => tab.id.slice(4)))) {
    await page.click(`#tab-${id}`);
    if (!(await page.locator(`#${id}`).isVisible())) throw new Error(`page ${id} does not show`);
    texts[id] = await page.locator(`#${id}`).innerText();
  }

  await page.click("#tab-graphs");
  const first = { left: await boxes("left"), right: await boxes("right") };
  const zoom = [await scale()];
  for (const name of ["Larger", "Smaller", "All of it"]) {
    await page.click(`#right button[title="${name}"]`);
    zoom.push(await scale());
  }
  const canvas = await page.locator("#right .canvas").boundingBox();
  await page.mouse.move(canvas.x + 15, canvas.y + canvas.height - 15);
  await page.mouse.wheel(0, -300);
  await page.waitForTimeout(50);
  zoom.push(await scale());
  const before = await page.evaluate(() => right.offset);
  await page.mouse.down();
  await page.mouse.move(canvas.x + 115, canvas.y + canvas.height - 75, { steps: 4 });
  await page.mouse.up();
  const after = await page.evaluate(() => right.offset);
  const moved = [after.x - before.x, after.y - before.y];

  await page.click('#right button[title="Open everything"]');
  const everything = await boxes("right");
  await page.click('#right button[title="Close everything"]');
  const nothing = await boxes("right");
  await page.click('#right button[title="All of it"]');
  let toggled = null;
  if (await page.locator("#right .toggle").count()) {
    await page.locator("#right .toggle").first().dispatchEvent("click");
    toggled = (await boxes("right")) - nothing;
    await page.locator("#right .toggle").first().dispatchEvent("click");
  }

  // The same from the keyboard; the box keeps the focus.
  let turned = null;
  if (toggled !== null) {
    const box = page.locator("#right [aria-expanded=false]").first();
    await box.focus();
    turned = [];
    for (const key of ["ArrowRight", "ArrowLeft"]) {
      await page.keyboard.press(key);
      turned.push((await boxes("right")) - nothing, await page.evaluate(() => document.activeElement.getAttribute("aria-expanded")));
    }
  }

  await page.fill("#search", find);
  const found = await page.locator("#found button").count();
  await page.press("#search", "Enter");
  const details = await page.locator("#details").innerText();
  await page.fill("#search", find);
  await page.press("#search", "ArrowDown");
  await page.keyboard.press("ArrowDown");
  const focused = await page.evaluate(() => [...document.querySelectorAll("#found button")].indexOf(document.activeElement));
  await page.press("#search", "Escape");
  let pressed = null;
  if (await page.locator("#legend button").count()) {
    const part = page.locator("#legend button").first();
    await part.click();
    pressed = { title: await part.getAttribute("title"), chosen: await page.locator("#left .chosen title").first().textContent(), lit: await page.locator("#right .lit").count() };
    await page.press("#search", "Enter");
  }
  const wide = await page.locator("#details .scroll").evaluateAll((parts) => parts.filter((part) => part.scrollWidth > part.clientWidth).length);
  const chosen = await page.locator(".chosen").count();
  const lit = await page.locator("#right .lit").count();
  if (pictures) {
    const shown = pictures.show ? await page.evaluate(pictures.show) : null;
    if (shown) await page.waitForTimeout(50);
    await page.screenshot({ path: pictures.light });
  }

  await page.click("#left button[title='The state after']");
  const stepped = await page.locator("#left select").inputValue();
  await page.selectOption("#right select", "1");
  const selected = await page.locator("#right select").inputValue();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const colours = [await background()];
  await page.click("#theme");
  colours.push(await background());
  await page.emulateMedia({ colorScheme: "dark" });
  await page.click("#tab-passes");
  const rows = await page.locator("#steps tbody tr").count();
  await page.locator("#steps tbody tr").nth(rows > 1 ? 1 : 0).click();
  const marks = { new: await page.locator("#right .new").count(), gone: await page.locator("#left .gone").count() };
  const shownSteps = [await page.locator("#left select").inputValue(), await page.locator("#right select").inputValue()];
  await page.click("#tab-passes");
  let refused = null;
  if (await page.locator("#refusing").count()) {
    const lines = () => page.locator("#refusing + div tbody tr").count();
    refused = [await lines()];
    await page.selectOption("#refusing", { index: 1 });
    refused.push(await lines());
  }
  if (pictures?.passes) await page.screenshot({ path: pictures.passes });
  await page.click("#tab-program");
  await page.click("#copy");
  await page.waitForFunction(() => document.getElementById("copy").textContent !== "Copy");
  const copied = await page.locator("#copy").innerText();
  const images = await page.locator("img, iframe, object, embed").count();
  if (pictures?.dark) {
    await page.evaluate(() => {
      open("graphs");
      left.show(0);
      right.show(LAST);
    });
    await page.fill("#search", find);
    await page.press("#search", "Enter");
    if (pictures.show) await page.evaluate(pictures.show);
    await page.screenshot({ path: pictures.dark });
  }
  await page.click("#tab-errors");
  await page.emulateMedia({ media: "print" });
  const paper = await page.evaluate(() => document.body.scrollHeight >= document.querySelector("#errors").scrollHeight && !document.querySelector("#search").checkVisibility());
  await page.emulateMedia({ media: "screen" });
  await page.setViewportSize({ width: 480, height: 860 });
  await page.click("#tab-graphs");
  const cut = await page.locator(".bar button, nav button").evaluateAll((all) => all.filter((one) => one.getBoundingClientRect().right > innerWidth).length);
  await page.click("#tab-errors");
  const broken = await page.locator("#errors tbody td:first-child").evaluateAll((cells) => cells.filter((cell) => cell.clientHeight > 40 && cell.innerText.length < 12).length);
  // The browser's own button, and the keyboard.
  const current = () => page.locator("nav [aria-selected=true]").evaluateAll((tabs) => tabs.map((tab) => tab.id));
  const walked = [await page.goBack().then(current)];
  await page.focus("#tab-graphs");
  for (const key of ["ArrowLeft", "ArrowLeft", "ArrowRight", "End"]) walked.push(await page.keyboard.press(key).then(current));
  const stops = await page.locator("nav button[tabindex='0']").count();
  const seen = {
    turned, walked, stops, wide, cut, broken, focused, pressed, paper, texts, first, zoom, moved, everything, nothing, toggled, found, details, chosen, lit, stepped, selected, colours, rows, marks, shownSteps,
    refused, copied, images, ...notes,
  };
  return seen;
});
console.log(JSON.stringify(found));
