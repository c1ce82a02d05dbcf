// The machine's Chromium, driven by the playwright-core of a folder of packages.
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SWITCHES = [
  "--no-sandbox",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const NO_GPU = ["--disable-gpu"];
// On Linux WebGPU is behind a switch. SwiftShader, Chromium's own driver for Vulkan, computes on the processor, so that there is an adapter everywhere.
const WEBGPU = ["--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-webgpu-adapter=swiftshader"];

/**
 * Calls `use(page)` with a page in a profile of its own, which is removed; `options` are Playwright's of a context,
 * and `webgpu` whether the page is to have WebGPU.
 */
export async function inChromium(packages, executablePath, { webgpu = false, ...options }, use) {
  const { chromium } = createRequire(join(packages, "package.json"))("playwright-core");
  const profile = await mkdtemp(join(tmpdir(), "chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    args: [...SWITCHES, ...(webgpu ? WEBGPU : NO_GPU)],
    ...options,
  });
  try {
    return await use(await context.newPage());
  } finally {
    await context.close();
    await rm(profile, { recursive: true, force: true });
  }
}
