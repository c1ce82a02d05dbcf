// Drives the page of a folder that `lstm-lower export --page` wrote: node drive.mjs OPTIONS, a JSON object. Prints what the page said as JSON.
import { join } from "node:path";

import { inChromium } from "../../benchmarks/anywhere/chromium.mjs";

const { packages, chromium: executablePath, url, data, steps, size, names, folder, pictures = [], webgpu } = JSON.parse(process.argv[2]);
const options = { webgpu, acceptDownloads: true, colorScheme: "light", viewport: { width: 860, height: 720 } };
await inChromium(packages, executablePath, options, async (page) => {
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  const foreign = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(new URL(url).origin) && !/^(data|blob):/.test(request.url())) foreign.push(request.url());
  });
  const sent = [];
  page.on("request", (request) => request.method() !== "GET" && sent.push(request.url()));
  await page.goto(url);
  if (webgpu && !(await page.evaluate(async () => await navigator.gpu?.requestAdapter()))) throw new Error("Chromium has no adapter");
  await page.setInputFiles("#files", data);
  await page.fill("#steps", String(steps));
  await page.fill("#size", String(size));
  const trouble = () => page.evaluate(() => document.querySelector("#said.error")?.textContent ?? "");
  await page.waitForFunction(() => !document.querySelector("#train").disabled || document.querySelector("#said.error"));
  if (await trouble()) throw new Error(await trouble());
  await page.click("#train");
  await page.waitForFunction(() => globalThis.lastRun || document.querySelector("#said.error"), null, { timeout: 120_000 });
  if (await trouble()) throw new Error(await trouble());
  const { losses, classes } = await page.evaluate(() => globalThis.lastRun);
  const said = await page.textContent("#said");
  const wide = [];
  for (const [colorScheme, width, height, path] of [["light", 390, 844], ["dark", 1400, 900], ...pictures]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height });
    wide.push(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth));
    if (path) await page.screenshot({ path });
  }
  const downloads = [];
  page.on("download", (download) => downloads.push(download));
  await page.click("#save");
  while (downloads.length < names.length) await page.waitForTimeout(20);
  for (const download of downloads) await download.saveAs(join(folder, download.suggestedFilename()));
  console.log(JSON.stringify({ losses, classes, said, wrong, foreign, sent, wide: wide.some(Boolean) }));
});
