// The order of samples: that of `lstm-lower train`, number by number, so that a run can go on elsewhere.
// numpy's `default_rng([seed, epoch]).permutation(count)`: SeedSequence, and PCG64 (O'Neill, HMC-CS-2014-0905).

const WORD = (1n << 64n) - 1n;
const WIDE = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/** Words of 32 bits that hold a number, the lowest first. */
function wordsOf(number: number): number[] {
  const words = [number >>> 0];
  if (number >= 2 ** 32) words.push(Math.floor(number / 2 ** 32) >>> 0);
  return words;
}

/** SeedSequence: eight words from any number of them. */
function seeds(entropy: readonly number[]): bigint[] {
  let multiplier = 0x43b0d7e5;
  const hashed = (value: number): number => {
    const mixed = (value ^ multiplier) >>> 0;
    multiplier = Math.imul(multiplier, 0x931e8875) >>> 0;
    const product = Math.imul(mixed, multiplier) >>> 0;
    return (product ^ (product >>> 16)) >>> 0;
  };
  const mix = (x: number, y: number): number => {
    const result = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
    return (result ^ (result >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((place) => hashed(entropy[place] ?? 0));
  for (let source = 0; source < 4; source++)
    for (let target = 0; target < 4; target++)
      if (source !== target) pool[target] = mix(pool[target]!, hashed(pool[source]!));
  for (const more of entropy.slice(4))
    for (let target = 0; target < 4; target++) pool[target] = mix(pool[target]!, hashed(more));
  let second = 0x8b51f9dd;
  return Array.from({ length: 8 }, (_, place) => {
    const value = (pool[place % 4]! ^ second) >>> 0;
    second = Math.imul(second, 0x58f38ded) >>> 0;
    const product = Math.imul(value, second) >>> 0;
    return BigInt((product ^ (product >>> 16)) >>> 0);
  });
}

/** Random words of 32 bits. */
function generator(entropy: readonly number[]): () => number {
  const words = seeds(entropy);
  const quads = [0, 2, 4, 6].map((place) => words[place]! | (words[place + 1]! << 32n));
  const increment = ((((quads[2]! << 64n) | quads[3]!) << 1n) | 1n) & WIDE;
  const advanced = (state: bigint): bigint => (state * MULTIPLIER + increment) & WIDE;
  let state = advanced((increment + ((quads[0]! << 64n) | quads[1]!)) & WIDE);
  let kept: number | undefined;
  return () => {
    if (kept !== undefined) {
      const word = kept;
      kept = undefined;
      return word;
    }
    state = advanced(state);
    const folded = ((state >> 64n) ^ state) & WORD;
    const by = state >> 122n;
    const word = ((folded >> by) | (folded << (64n - by))) & WORD;
    kept = Number(word >> 32n);
    return Number(word & 0xffffffffn);
  };
}

/** A number from 0 to `most`, each as likely: random bits until they make one. */
function bounded(next: () => number, most: number): number {
  const mask = 2 ** (32 - Math.clz32(most)) - 1;
  for (;;) {
    const number = (next() & mask) >>> 0;
    if (number <= most) return number;
  }
}

/** The order of an epoch's samples. */
export function permutation(count: number, seed: number, epoch: number): Uint32Array {
  const next = generator([...wordsOf(seed), ...wordsOf(epoch)]);
  const rows = Uint32Array.from({ length: count }, (_, row) => row);
  // The order of shards is drawn before that of samples; of one shard it takes no number.
  for (let last = count - 1; last > 0; last--) {
    const other = bounded(next, last);
    [rows[last], rows[other]] = [rows[other]!, rows[last]!];
  }
  return rows;
}
