// SHA-256 (FIPS 180-4). Browsers have one of their own on https and localhost only, and not where a phone opens a
// page of a computer beside it.

const primes = (count: number): number[] => {
  const found: number[] = [];
  for (let number = 2; found.length < count; number++) if (found.every((prime) => number % prime)) found.push(number);
  return found;
};
const fraction = (value: number): number => ((value - Math.floor(value)) * 2 ** 32) | 0;
const ROUNDS = Int32Array.from(primes(64), (prime) => fraction(Math.cbrt(prime)));
const FIRST = Int32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)));

const rotated = (word: number, by: number): number => (word >>> by) | (word << (32 - by));

/** The hash of bytes, in hexadecimal digits. */
export function sha256(bytes: Uint8Array): string {
  const hash = FIRST.slice();
  const words = new Int32Array(64);
  const whole = bytes.length & ~63;
  const tail = new Uint8Array(bytes.length - whole < 56 ? 64 : 128);
  tail.set(bytes.subarray(whole));
  tail[bytes.length - whole] = 0x80;
  new DataView(tail.buffer).setBigUint64(tail.length - 8, BigInt(bytes.length) * 8n);
  const body = new DataView(bytes.buffer, bytes.byteOffset, whole);
  for (let block = 0; block < whole; block += 64) compress(hash, words, body, block);
  for (let block = 0; block < tail.length; block += 64) compress(hash, words, new DataView(tail.buffer), block);
  return Array.from(hash, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function compress(hash: Int32Array, words: Int32Array, view: DataView, start: number): void {
  for (let t = 0; t < 16; t++) words[t] = view.getInt32(start + t * 4);
  for (let t = 16; t < 64; t++) {
    const [early, late] = [words[t - 15]!, words[t - 2]!];
    const small = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
    const large = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
    words[t] = (words[t - 16]! + small + words[t - 7]! + large) | 0;
  }
  let a = hash[0]!,
    b = hash[1]!,
    c = hash[2]!,
    d = hash[3]!,
    e = hash[4]!,
    f = hash[5]!,
    g = hash[6]!,
    h = hash[7]!;
  for (let t = 0; t < 64; t++) {
    const chosen = (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g));
    const first = (h + chosen + ROUNDS[t]! + words[t]!) | 0;
    const second = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, place) => (hash[place] = (hash[place]! + word) | 0));
}

const UNSEALED = "0".repeat(64);

/** Where the digits behind some text begin; texts of ASCII have a byte for each letter. */
function placeOf(bytes: Uint8Array, before: string, digits: string): number {
  const place = new TextDecoder("latin1").decode(bytes).indexOf(before + digits);
  return place < 0 ? place : place + before.length;
}

/**
 * Writes a hash of bytes into them, in place of the 64 zeros behind some text.
 *
 * @param head how many bytes at the beginning are looked at for them.
 */
export function seal(bytes: Uint8Array, before: string, head = bytes.length): Uint8Array {
  bytes.set(new TextEncoder().encode(sha256(bytes)), placeOf(bytes.subarray(0, head), before, UNSEALED));
  return bytes;
}

/** Whether bytes are those of which a hash stands in them behind some text, computed with zeros in its place. */
export function isSealed(bytes: Uint8Array, before: string, digest: string, head = bytes.length): boolean {
  const place = placeOf(bytes.subarray(0, head), before, digest);
  if (place < 0 || !/^[0-9a-f]{64}$/.test(digest)) return false;
  const unsealed = new Uint8Array(bytes);
  unsealed.fill(0x30, place, place + UNSEALED.length);
  return sha256(unsealed) === digest;
}
