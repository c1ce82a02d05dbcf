// Trains bundles of lstm-lower in C++17: one header, which needs onnxruntime's library and JSON for Modern C++.
//
//     lstm_lower::Trainer trainer("bundle");
//     float loss = trainer.step({{"x", x}, {"target", target}});
//     trainer.fit({{"x", all_x}, {"target", all_targets}}, {.epochs = 5, .validation = &others});      // C++20's names of options
//     auto scores = trainer.evaluate(others);
//     trainer.save("run.safetensors");                                          // for C++, Python and JavaScript
//
// docs/bundle.md says what a bundle is. What does not fit is refused in the words of lstm-lower in Python; after an error the state is as before.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>
#include <onnxruntime_cxx_api.h>

namespace lstm_lower {

using Json = nlohmann::json;
using std::string, std::vector;

inline void require(bool right, const string& message) {
  if (!right) throw std::runtime_error(message);
}

// A text as a terminal may have it: names in files are anybody's, and control characters in them would command it.
inline string shown(const string& text) {
  std::ostringstream out;
  for (const unsigned char letter : text)
    if (letter >= ' ' && letter <= '~') out << letter;
    else out << "\\x" << std::hex << std::setw(2) << std::setfill('0') << int(letter);
  return out.str();
}

// What a dtype is: its name in .npy files and in safetensors files, its type in onnxruntime, and how many bytes a number has.
struct Dtype {
  const char* descr;
  const char* safetensors;
  ONNXTensorElementDataType type;
  size_t size;
};

inline const std::map<string, Dtype>& dtypes() {
  static const std::map<string, Dtype> held{
      {"float32", {"<f4", "F32", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4}},  {"float64", {"<f8", "F64", ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8}},
      {"float16", {"<f2", "F16", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2}}, {"int64", {"<i8", "I64", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8}},
      {"int32", {"<i4", "I32", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4}},    {"uint8", {"|u1", "U8", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1}},
      {"int16", {"<i2", "I16", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, 2}},    {"uint16", {"<u2", "U16", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, 2}},
      {"int8", {"|i1", "I8", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1}},       {"uint32", {"<u4", "U32", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, 4}},
      {"uint64", {"<u8", "U64", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, 8}},  {"bool", {"|b1", "BOOL", ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1}}};
  return held;
}

inline const Dtype& dtype_of(const string& name) {
  const auto place = dtypes().find(name);
  require(place != dtypes().end(), "a dtype that this header knows is required, got " + name);
  return place->second;
}

using Shape = vector<int64_t>;

inline string sizes(const Json& shape) {
  string text;
  for (const Json& size : shape) text += (text.empty() ? "" : ", ") + (size.is_null() ? "?" : size.is_string() ? size.get<string>() : size.dump());
  return "[" + text + "]";
}

inline size_t product(const Shape& shape, size_t first, size_t last) {
  size_t count = 1;
  for (size_t axis = first; axis < last; axis++) {
    require(shape[axis] >= 0 && (shape[axis] == 0 || count <= size_t(PTRDIFF_MAX) / 16 / size_t(shape[axis])), "sizes of an array that can be are required");
    count *= size_t(shape[axis]);
  }
  return count;
}

// Numbers of a dtype in C's order.
struct Array {
  string dtype;
  Shape shape;
  string bytes;

  template <typename Number>
  static Array of(const string& dtype, const Shape& shape, const vector<Number>& numbers) {
    require(sizeof(Number) == dtype_of(dtype).size, "numbers of " + dtype + " are required");
    return {dtype, shape, string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number))};
  }

  template <typename Number>
  const Number* data() const {
    return reinterpret_cast<const Number*>(bytes.data());
  }

  // Some samples along an axis.
  Array take(const vector<size_t>& rows, size_t axis = 0) const {
    const size_t outer = product(shape, 0, axis), size = size_t(shape[axis]);
    const size_t inner = product(shape, axis + 1, shape.size()) * dtype_of(dtype).size;
    Array taken{dtype, shape, {}};
    taken.shape[axis] = int64_t(rows.size());
    for (size_t block = 0; block < outer; block++)
      for (const size_t row : rows) taken.bytes.append(bytes, (block * size + row) * inner, inner);
    return taken;
  }
};

using Arrays = std::map<string, Array>;

inline string read_file(const string& path) {
  std::ifstream file(path, std::ios::binary);
  require(bool(file), path + ": a readable file is required");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The array of a .npy file.
inline Array read_npy(const string& path) {
  const string text = read_file(path), what = path + ": ";
  require(text.size() > 12 && text.compare(0, 6, "\x93NUMPY") == 0, what + "a .npy file is required");
  const size_t before = text[6] == 1 ? 10 : 12;  // the length of the header has two bytes in version 1, four later
  size_t length = 0;
  for (size_t place = before; place-- > 8;) length = length * 256 + static_cast<unsigned char>(text[place]);
  require(text.size() >= before + length && length < 1 << 16, what + "a whole .npy file is required");
  const string header = text.substr(before, length);
  std::smatch parts;
  require(header.find("'fortran_order': False") != string::npos, what + "an array in C's order is required, got " + header);
  require(std::regex_search(header, parts, std::regex(R"('shape': \(([^)]*)\))")), what + "an array with a shape is required, got " + header);
  Array array;
  std::istringstream stream(parts[1]);
  for (string size; std::getline(stream, size, ',') && size.find_first_of("0123456789") != string::npos;) array.shape.push_back(std::stoll(size));
  for (const auto& [name, dtype] : dtypes())
    if (header.find(string("'") + dtype.descr + "'") != string::npos) array.dtype = name;
  array.bytes = text.substr(before + length);
  const bool is_whole = !array.dtype.empty() && array.bytes.size() == product(array.shape, 0, array.shape.size()) * dtype_of(array.dtype).size;
  require(is_whole, what + "an array of numbers, as many as its shape says, is required, got " + header);
  return array;
}

// SHA-256 (FIPS 180-4), in hexadecimal digits.
inline string sha256(string bytes) {
  const auto rotated = [](uint32_t word, int by) { return (word >> by) | (word << (32 - by)); };
  // The first 32 bits of the fractions of square and cube roots of primes.
  const auto fraction = [](long double root) { return uint32_t((root - std::floor(root)) * 4294967296.0L); };
  std::array<uint32_t, 8> hash;
  std::array<uint32_t, 64> rounds;
  for (size_t number = 2, count = 0; count < 64; number++) {
    bool is_prime = true;
    for (size_t factor = 2; factor * factor <= number; factor++) is_prime = is_prime && number % factor != 0;
    if (!is_prime) continue;
    if (count < 8) hash[count] = fraction(std::sqrt(static_cast<long double>(number)));
    rounds[count++] = fraction(std::cbrt(static_cast<long double>(number)));
  }
  const uint64_t bits = uint64_t(bytes.size()) * 8;
  bytes += '\x80';
  bytes.resize((bytes.size() + 8 + 63) / 64 * 64 - 8);
  for (int shift = 56; shift >= 0; shift -= 8) bytes += char(bits >> shift);
  std::array<uint32_t, 64> words;
  for (size_t block = 0; block < bytes.size(); block += 64) {
    for (size_t t = 0; t < 16; t++) {
      words[t] = 0;
      for (size_t place = 0; place < 4; place++) words[t] = words[t] << 8 | static_cast<unsigned char>(bytes[block + t * 4 + place]);
    }
    for (size_t t = 16; t < 64; t++) {
      const uint32_t early = words[t - 15], late = words[t - 2];
      words[t] = words[t - 16] + (rotated(early, 7) ^ rotated(early, 18) ^ early >> 3) + words[t - 7] + (rotated(late, 17) ^ rotated(late, 19) ^ late >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = hash;
    for (size_t t = 0; t < 64; t++) {
      const uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + rounds[t] + words[t];
      const uint32_t second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
    for (size_t place = 0; place < 8; place++) hash[place] += mixed[place];
  }
  std::ostringstream digits;
  for (const uint32_t word : hash) digits << std::hex << std::setw(8) << std::setfill('0') << word;
  return digits.str();
}

// A list of names as messages have it.
inline string quoted(const vector<string>& names) {
  string text;
  for (const string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return "[" + text + "]";
}

// The order of samples in an epoch, that of `lstm-lower train` with the same seed: numpy's default_rng([seed, epoch]).permutation(count), which is
// SeedSequence and PCG64 (O'Neill, HMC-CS-2014-0905).
class Permutation {
 public:
  Permutation(uint64_t seed, uint64_t epoch) {
    vector<uint32_t> entropy;
    for (const uint64_t number : {seed, epoch}) {
      entropy.push_back(uint32_t(number));
      if (number >> 32) entropy.push_back(uint32_t(number >> 32));
    }
    entropy.resize(std::max<size_t>(4, entropy.size()), 0);
    uint32_t multiplier = 0x43b0d7e5;
    const auto hashed = [&](uint32_t value) {
      value ^= multiplier;
      multiplier *= 0x931e8875;
      value *= multiplier;
      return value ^ value >> 16;
    };
    const auto mix = [](uint32_t x, uint32_t y) {
      const uint32_t mixed = 0xca01f9dd * x - 0x4973f715 * y;
      return mixed ^ mixed >> 16;
    };
    std::array<uint32_t, 4> pool;
    for (size_t place = 0; place < 4; place++) pool[place] = hashed(entropy[place]);
    for (size_t source = 0; source < 4; source++)
      for (size_t target = 0; target < 4; target++)
        if (source != target) pool[target] = mix(pool[target], hashed(pool[source]));
    for (size_t place = 4; place < entropy.size(); place++)
      for (uint32_t& target : pool) target = mix(target, hashed(entropy[place]));
    std::array<uint64_t, 4> seeds{};
    uint32_t second = 0x8b51f9dd;
    for (size_t place = 0; place < 8; place++) {
      uint32_t value = pool[place % 4] ^ second;
      second *= 0x58f38ded;
      value *= second;
      seeds[place / 2] |= uint64_t(value ^ value >> 16) << 32 * (place % 2);
    }
    increment_ = {seeds[2] << 1 | seeds[3] >> 63, seeds[3] << 1 | 1};
    state_ = increment_;
    add({seeds[0], seeds[1]});
    advance();
  }

  vector<size_t> rows(size_t count) {
    vector<size_t> rows(count);
    std::iota(rows.begin(), rows.end(), size_t(0));
    for (size_t last = count; last-- > 1;) std::swap(rows[last], rows[bounded(uint32_t(last))]);
    return rows;
  }

 private:
  struct Wide {
    uint64_t high, low;
  };

  void add(const Wide& other) {
    state_.low += other.low;
    state_.high += other.high + (state_.low < other.low);
  }

  void advance() {
    const uint64_t high = 0x2360ed051fc65da4, low = 0x4385df649fccf645, mask = 0xffffffff;
    // The product of two numbers of 64 bits has 128.
    const uint64_t a = state_.low >> 32, b = state_.low & mask, c = low >> 32, d = low & mask;
    const uint64_t middle = a * d + (b * d >> 32), other = b * c + (middle & mask);
    const uint64_t carried = a * c + (middle >> 32) + (other >> 32);
    state_ = {carried + state_.high * low + state_.low * high, state_.low * low};
    add(increment_);
  }

  uint32_t next() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    advance();
    const uint64_t folded = state_.high ^ state_.low;
    const unsigned by = unsigned(state_.high >> 58);
    const uint64_t word = folded >> by | folded << (-by & 63);
    half_ = uint32_t(word >> 32), has_half_ = true;
    return uint32_t(word);
  }

  // A number from 0 to `most`, each as likely: random bits until they make one.
  uint32_t bounded(uint32_t most) {
    uint32_t mask = most;
    for (int by = 1; by < 32; by *= 2) mask |= mask >> by;
    for (;;)
      if (const uint32_t number = next() & mask; number <= most) return number;
  }

  Wide state_, increment_;
  uint32_t half_ = 0;
  bool has_half_ = false;
};

// Python's JSON has words for what is no number of JSON's; strings with this beginning stand for them meanwhile.
inline const vector<string> no_numbers{"-Infinity", "Infinity", "NaN"};
inline const string mark = "\"\\u0000";

inline Json parse_numbers(const string& text) {
  string marked;
  bool is_text = false;
  for (size_t place = 0; place < text.size(); place++) {
    const auto word = std::find_if(no_numbers.begin(), no_numbers.end(), [&](const string& each) { return !is_text && text.compare(place, each.size(), each) == 0; });
    if (word != no_numbers.end()) {
      marked += mark + *word + "\"";
      place += word->size() - 1;
      continue;
    }
    if (text[place] == '"') is_text = !is_text;
    if (is_text && text[place] == '\\' && place + 1 < text.size()) marked += text[place++];
    marked += text[place];
  }
  return Json::parse(marked, nullptr, false);
}

inline string write_numbers(const Json& value) {
  string text = value.dump();
  for (const string& word : no_numbers)
    for (size_t place; (place = text.find(mark + word + "\"")) != string::npos;) text.replace(place, mark.size() + word.size() + 1, word);
  return text;
}

// What stands before the hash of a safetensors file of lstm-lower, in JSON within JSON.
inline const string before_hash = "\\\"sha256\\\": \\\"";

// A safetensors file of arrays, with notes of a kind and its hash; equal values make equal files.
inline string sealed(const string& kind, const string& notes, const Arrays& arrays) {
  const string zeros(64, '0');
  vector<const Arrays::value_type*> ordered;
  for (const auto& entry : arrays) ordered.push_back(&entry);
  std::stable_sort(ordered.begin(), ordered.end(), [](auto a, auto b) { return dtype_of(a->second.dtype).size > dtype_of(b->second.dtype).size; });
  Json header;
  header["__metadata__"][kind] = "{" + notes + ", \"sha256\": \"" + zeros + "\"}";
  string values;
  for (const auto* entry : ordered) {
    const auto& [name, array] = *entry;
    header[name] = {{"dtype", dtype_of(array.dtype).safetensors}, {"shape", array.shape}, {"data_offsets", {values.size(), values.size() + array.bytes.size()}}};
    values += array.bytes;
  }
  string text = header.dump(), file;
  text.resize((text.size() + 7) / 8 * 8, ' ');
  for (int shift = 0; shift < 64; shift += 8) file += char(uint64_t(text.size()) >> shift);
  file += text + values;
  return file.replace(file.rfind(before_hash + zeros, 8 + text.size()) + before_hash.size(), 64, sha256(file));
}

// The arrays and the notes of such a file, which is compared with its hash; `what` is what it is called.
inline std::pair<Arrays, Json> unsealed(const string& file, const string& kind, const string& what) {
  const auto whole = [&](bool right, const string& reason) { require(right, what + " is required, got a damaged one (" + reason + ")"); };
  uint64_t length = 0;
  for (size_t place = 8; file.size() >= 8 && place-- > 0;) length = length << 8 | static_cast<unsigned char>(file[place]);
  whole(file.size() >= 8 && length <= file.size() - 8, "its header is cut");
  const Json header = Json::parse(file.substr(8, length), nullptr, false);
  whole(header.is_object() && header.contains("__metadata__") && header["__metadata__"].is_object(), "its header is no JSON with notes");
  const Json& metadata = header["__metadata__"];
  require(metadata.contains(kind), what + " is required, got a file without notes of one");
  const Json notes = metadata[kind].is_string() ? parse_numbers(metadata[kind]) : Json();
  whole(notes.is_object() && notes.contains("sha256") && notes["sha256"].is_string(), "its notes lack a hash");
  const string digest = notes["sha256"];
  const size_t place = file.rfind(before_hash + digest, 8 + length);
  const bool is_same = digest.size() == 64 && place != string::npos && sha256(string(file).replace(place + before_hash.size(), 64, 64, '0')) == digest;
  whole(is_same, "its hash is another one");
  Arrays arrays;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    string dtype;
    for (const auto& [own, known] : dtypes())
      if (entry.at("dtype") == known.safetensors) dtype = own;
    whole(!dtype.empty(), "'" + name + "' is of " + entry.at("dtype").dump());
    const Shape shape = entry.at("shape");
    const size_t first = entry.at("data_offsets").at(0), size = product(shape, 0, shape.size()) * dtype_of(dtype).size;
    whole(first <= file.size() - 8 - length && size <= file.size() - 8 - length - first, "'" + name + "' is cut");
    arrays[name] = {dtype, shape, file.substr(8 + length + first, size)};
  }
  return {std::move(arrays), notes};
}

// Samples of an input: an array of all of them, or a list of them, of which some may be longer than others: `[length, ...]` each.
using Samples = std::variant<Array, vector<Array>>;

// Samples by input.
struct Data : std::map<string, Samples> {
  using map::map;
  Data(const Arrays& arrays) : map(arrays.begin(), arrays.end()) {}
};

// Numbers as bytes of a dtype; `what` is for what they are required.
inline string bytes_of(const string& dtype, const vector<double>& numbers, const string& what) {
  string bytes;
  const auto put = [&](auto kind) {
    for (const double number : numbers) {
      const auto own = static_cast<decltype(kind)>(number);
      require(std::is_floating_point_v<decltype(kind)> || double(own) == number, what + " requires numbers that " + dtype + " holds, got " + Json(number).dump());
      bytes.append(reinterpret_cast<const char*>(&own), sizeof own);
    }
  };
  switch (dtype_of(dtype).type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: put(float()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: put(double()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: put(int64_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: put(int32_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: put(int16_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: put(int8_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64: put(uint64_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32: put(uint32_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16: put(uint16_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: put(uint8_t()); break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: put(bool()); break;
    default:
      // A float16's zero has no bits.
      for (const double number : numbers) require(number == 0, what + " requires zero in " + dtype + ", got " + Json(number).dump());
      bytes.resize(2 * numbers.size());
  }
  return bytes;
}

// The one number of an array.
inline double number_of(const Array& array) {
  switch (dtype_of(array.dtype).type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return *array.data<float>();
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: return *array.data<double>();
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return double(*array.data<int64_t>());
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return *array.data<int32_t>();
    default: throw std::runtime_error("a score in float32, float64, int64 or int32 is required, got " + array.dtype);
  }
}

// Several arrays as one, along an axis; they have one shape but for it.
inline Array concatenated(const vector<Array>& arrays, size_t axis) {
  Array whole{arrays[0].dtype, arrays[0].shape, {}};
  whole.shape[axis] = 0;
  for (const Array& array : arrays) whole.shape[axis] += array.shape[axis];
  const size_t outer = product(whole.shape, 0, axis);
  for (size_t block = 0; block < outer; block++)
    for (const Array& array : arrays) whole.bytes.append(array.bytes, block * array.bytes.size() / outer, array.bytes.size() / outer);
  return whole;
}

// Dtype and shape of an input, such as `float32[B, 6]`.
inline string signature(const Json& input) { return input.at("dtype").get<string>() + sizes(input.at("shape")); }

// The data inputs of a model, and along which axis of each the samples lie.
class Layout {
 public:
  const Json inputs;
  std::map<string, size_t> axes;
  std::optional<size_t> batch_size;  // where the model fixes it

  // `recorded` are the inputs of the step, of which training.json says the axes; of others it is that of the open size that all have.
  Layout(const Json& inputs, const Json& recorded) : inputs(inputs) {
    const auto shared = shared_size();
    for (const Json& input : inputs) {
      const Json& shape = input.at("shape");
      size_t& axis = axes[input.at("name")];
      const auto own = std::find_if(recorded.begin(), recorded.end(), [&](const Json& other) { return other.at("name") == input.at("name"); });
      const auto open = std::find_if(shape.begin(), shape.end(), [&](const Json& size) { return shared ? size == *shared : !size.is_number(); });
      if (open != shape.end()) axis = size_t(open - shape.begin());
      if (own != recorded.end() && own->contains("sample_axis") && own->at("sample_axis").is_number()) axis = own->at("sample_axis");
      if (shape.empty() || !shape.at(axis).is_number()) continue;
      require(!batch_size || *batch_size == shape[axis], "data inputs require one number of samples per batch, got others");
      batch_size = shape[axis];
    }
  }

  // The batch size of a run.
  size_t size_of(const std::optional<size_t>& given) const {
    require(!given || *given > 0, "batch_size requires a whole number, at least 1, got 0");
    return given.value_or(batch_size.value_or(32));
  }

  vector<string> names() const {
    vector<string> names;
    for (const auto& entry : axes) names.push_back(entry.first);
    return names;
  }

 private:
  std::optional<string> shared_size() const {
    vector<string> shared;
    bool is_first = true;
    for (const Json& input : inputs) {
      const Json& shape = input.at("shape");
      if (shape.empty()) continue;
      vector<string> named;
      for (const Json& size : shape)
        if (size.is_string() && (is_first || std::find(shared.begin(), shared.end(), size) != shared.end())) named.push_back(size);
      shared = named, is_first = false;
    }
    return shared.size() == 1 ? std::optional(shared[0]) : std::nullopt;
  }
};

// How sequences of different lengths become one array.
struct Padding {
  std::map<string, double> values;   // input -> what is put behind its shorter sequences
  std::map<string, string> lengths;  // input that takes lengths -> the input whose lengths they are
  vector<size_t> buckets;            // lengths to which they are padded, ascending; samples of one batch come from one of them

  void check(const Layout& layout) const {
    const vector<string> names = layout.names();
    const auto named = [&](const string& what, const string& name) {
      require(layout.axes.count(name) == 1, what + " requires names of data inputs, " + quoted(names) + ", got '" + name + "'");
    };
    for (const auto& entry : values) named("pad", entry.first);
    for (const auto& entry : lengths) named("lengths", entry.first);
    for (const auto& entry : lengths) named("lengths", entry.second);
    const bool is_ascending = std::adjacent_find(buckets.begin(), buckets.end(), std::greater_equal<>()) == buckets.end();
    require(is_ascending && (buckets.empty() || buckets[0] > 0), "buckets require ascending lengths above 0, got " + sizes(buckets));
    require(buckets.empty() || !values.empty(), "buckets require pad={'<input>': value}, got no input that is padded");
  }

  // The part that is about inputs that are there; a prediction lacks the targets.
  Padding of(const Layout& layout) const {
    Padding part{{}, {}, buckets};
    for (const auto& [name, value] : values)
      if (layout.axes.count(name)) part.values[name] = value;
    for (const auto& [name, of] : lengths)
      if (layout.axes.count(name) && layout.axes.count(of)) part.lengths[name] = of;
    return part;
  }
};

// Samples in memory, compared with the inputs; they stay where they are.
class Table {
 public:
  size_t count = 0;

  const Layout layout;

  Table(const Layout& layout, const Padding& padding, const Data& data) : layout(layout), padding_(padding), data_(data) {
    string missing, given, counted;
    for (const auto& entry : data) given += (given.empty() ? "'" : ", '") + entry.first + "'";
    for (const Json& input : layout.inputs)
      if (const string name = input.at("name"); data.count(name) == 0 && padding.lengths.count(name) == 0)
        missing += (missing.empty() ? "'" : " and '") + name + "' " + signature(input);
    require(missing.empty(), "data requires an array " + missing + ", got [" + given + "]");
    std::set<size_t> counts;
    for (const Json& input : layout.inputs) {
      const string name = input.at("name");
      if (padding.lengths.count(name)) continue;
      const size_t own = checked(input, data.at(name));
      if (input.at("shape").empty()) continue;
      counts.insert(own);
      counted += (counted.empty() ? "'" : ", '") + name + "': " + std::to_string(own);
    }
    require(counts.size() <= 1, "data requires as many samples in every array, got {" + counted + "}");
    count = counts.empty() ? 0 : *counts.begin();
  }

  // Rows of each batch in an order of rows: the samples of a bucket wait until they fill one.
  vector<vector<size_t>> batches(const vector<size_t>& rows, size_t size) const {
    require(!layout.batch_size || size == *layout.batch_size,
            "batch size requires " + std::to_string(layout.batch_size.value_or(0)) + ", as the model has it, got " + std::to_string(size));
    require(count >= (layout.batch_size ? size : 1), "data requires at least one batch of " + std::to_string(size) + ", got " + std::to_string(count) + " samples");
    const vector<size_t>& buckets = padding_.buckets;
    vector<size_t> lengths(buckets.empty() ? 0 : count);
    for (size_t row = 0; row < lengths.size(); row++)
      for (const auto& entry : padding_.values) lengths[row] = std::max(lengths[row], length_of(entry.first, row));
    const size_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    require(buckets.empty() || longest <= buckets.back(), "buckets require a length of " + std::to_string(longest) + " or more at their end, got " + sizes(buckets));
    vector<vector<size_t>> waiting(std::max<size_t>(1, buckets.size())), whole;
    for (const size_t row : rows) {
      vector<size_t>& bucket = waiting[buckets.empty() ? 0 : size_t(std::lower_bound(buckets.begin(), buckets.end(), lengths[row]) - buckets.begin())];
      bucket.push_back(row);
      if (bucket.size() == size) whole.push_back(std::exchange(bucket, {}));
    }
    for (const vector<size_t>& rest : waiting)
      if (!layout.batch_size && !rest.empty()) whole.push_back(rest);
    return whole;
  }

  // Some samples as a batch.
  Arrays feeds(const vector<size_t>& rows) const {
    Arrays batch;
    for (const Json& input : layout.inputs) {
      const string name = input.at("name"), dtype = input.at("dtype");
      if (const auto of = padding_.lengths.find(name); of != padding_.lengths.end()) {
        vector<double> lengths;
        for (const size_t row : rows) lengths.push_back(double(length_of(of->second, row)));
        batch[name] = {dtype, {int64_t(rows.size())}, bytes_of(dtype, lengths, "lengths '" + name + "'")};
      } else if (const auto* array = std::get_if<Array>(&data_.at(name))) {
        batch[name] = input.at("shape").empty() ? *array : array->take(rows, layout.axes.at(name));
      } else {
        batch[name] = padded(input, std::get<vector<Array>>(data_.at(name)), rows);
      }
    }
    return batch;
  }

 private:
  // The number of samples of an input, which fit it.
  size_t checked(const Json& input, const Samples& samples) const {
    const string name = input.at("name"), what = "data '" + name + "' requires ";
    const size_t axis = layout.axes.at(name);
    const Json& rest = input.at("shape");
    if (const auto* array = std::get_if<Array>(&samples)) {
      const string means = rest.empty() ? ", one number for all samples (batches of your own may have one each)" : "";
      require(array->shape.size() == rest.size(), what + "rank " + std::to_string(rest.size()) + ", " + signature(input) + means + ", got " + sizes(array->shape));
      require(input.at("dtype") == array->dtype, what + signature(input) + ", got " + array->dtype);
      check_sizes(input, array->shape);
      return rest.empty() ? 1 : size_t(array->shape[axis]);
    }
    const vector<Array>& list = std::get<vector<Array>>(samples);
    const bool is_sequence = rest.size() > 1;
    for (const Array& sample : list) {
      require(sample.shape.size() + 1 == rest.size(), what + "samples of rank " + std::to_string(rest.size() - 1) + " for " + signature(input) + ", got one of " + sizes(sample.shape));
      require(input.at("dtype") == sample.dtype, what + signature(input) + ", got " + sample.dtype);
      require(!is_sequence || std::equal(sample.shape.begin() + 1, sample.shape.end(), list[0].shape.begin() + 1),
              what + "samples that differ in length only, got " + sizes(list[0].shape) + " and " + sizes(sample.shape));
    }
    require(is_sequence || padding_.values.count(name) == 0, what + "sequences to pad, got " + signature(input));
    const bool is_one_shape = std::all_of(list.begin(), list.end(), [&](const Array& sample) { return sample.shape == list[0].shape; });
    if (is_one_shape && !list.empty() && padding_.values.count(name) == 0) {
      Shape whole = list[0].shape;
      whole.insert(whole.begin() + ptrdiff_t(axis), int64_t(list.size()));
      check_sizes(input, whole);
    }
    return list.size();
  }

  void check_sizes(const Json& input, const Shape& shape) const {
    const Json& wanted = input.at("shape");
    for (size_t axis = 0; axis < wanted.size(); axis++)
      require(!wanted[axis].is_number() || wanted[axis] == shape[axis] || axis == layout.axes.at(input.at("name")),
              "data '" + input.at("name").get<string>() + "' requires " + signature(input) + ", got " + sizes(shape) + " (axis " + std::to_string(axis) + ")");
  }

  size_t length_of(const string& name, size_t row) const {
    const Samples& samples = data_.at(name);
    if (const auto* list = std::get_if<vector<Array>>(&samples)) return list->at(row).shape.empty() ? 0 : size_t(list->at(row).shape[0]);
    const Shape& shape = std::get<Array>(samples).shape;
    return shape.size() < 2 ? 0 : size_t(shape[layout.axes.at(name) == 0 ? 1 : 0]);
  }

  Array padded(const Json& input, const vector<Array>& list, const vector<size_t>& rows) const {
    const string name = input.at("name"), dtype = input.at("dtype"), what = "data '" + name + "' requires ";
    const size_t axis = layout.axes.at(name);
    vector<Array> samples;
    for (const size_t row : rows) samples.push_back(list[row]);
    if (input.at("shape").size() > 1) {
      vector<size_t> lengths;
      for (const size_t row : rows) lengths.push_back(size_t(list[row].shape[0]));
      const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
      const auto filler = padding_.values.find(name);
      require(filler != padding_.values.end() || *least == *most,
              what + "samples of one length, or pad={'" + name + "': value}, got lengths from " + std::to_string(*least) + " to " + std::to_string(*most));
      const Json& fixed = input.at("shape")[axis == 0 ? 1 : 0];
      require(!fixed.is_number() || *most <= fixed, what + "at most " + fixed.dump() + " steps, as the model has it, got " + std::to_string(*most));
      const auto bucket = std::lower_bound(padding_.buckets.begin(), padding_.buckets.end(), *most);
      const size_t target = filler == padding_.values.end() || (!fixed.is_number() && bucket == padding_.buckets.end()) ? *most : fixed.is_number() ? fixed.get<size_t>() : *bucket;
      for (Array& sample : samples) {
        const size_t numbers = (target - size_t(sample.shape[0])) * product(sample.shape, 1, sample.shape.size());
        if (numbers > 0) sample.bytes += bytes_of(dtype, vector<double>(numbers, filler->second), "pad of '" + name + "'");
        sample.shape[0] = int64_t(target);
      }
    }
    for (Array& sample : samples) sample.shape.insert(sample.shape.begin() + ptrdiff_t(axis), 1);
    Array whole = concatenated(samples, axis);
    check_sizes(input, whole.shape);
    return whole;
  }

  const Padding padding_;
  const Data& data_;
};

// Loss, metrics, and whatever else an epoch came to, by name.
using Logs = std::map<string, double>;

// What a step came to.
struct Step {
  float loss;      // before the update
  Arrays outputs;  // those that were asked for
};

// How `evaluate` and `predict` read data.
struct BatchOptions {
  std::optional<size_t> batch_size{};  // 32, or what the model fixes
  std::map<string, double> pad{};      // as of `FitOptions`
  std::map<string, string> lengths{};
};

// How `fit` goes on.
struct FitOptions {
  size_t epochs = 1;
  std::optional<size_t> batch_size{};     // 32, or what the model fixes
  bool shuffle = true;                    // the order is that of Python and JavaScript with the same seed
  uint64_t seed = 0;
  std::map<string, double> pad{};         // input -> what is put behind its shorter sequences; the input takes a list of them then
  std::map<string, string> lengths{};     // input that takes lengths -> the input whose lengths they are
  vector<size_t> buckets{};               // lengths to which sequences are padded, ascending; a batch's samples come from one of them
  const Data* validation = nullptr;       // to evaluate on after each epoch
  std::function<bool(float loss, size_t epoch)> after_step{};  // false ends the run
  std::function<bool(const Logs&)> after_epoch{};  // with the values of the epoch; false ends the run
};

// A bundle in onnxruntime, with its state.
class Trainer {
 public:
  double learning_rate = NAN;  // of the next step

  // Opens a bundle; every file is compared with its hash. `sizes` are the open ones of the state, such as {{"classes", 5}}.
  explicit Trainer(const string& folder, const std::map<string, int64_t>& sizes = {}) : folder_(folder), about_(described(folder)) {
    require(about_.at("loss").is_string(), "a bundle of a step that names its loss is required, got one without");
#ifndef _WIN32
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // from 1.32 on, the library for Linux reports to its maker otherwise
#endif
    environment_ = Ort::Env(ORT_LOGGING_LEVEL_FATAL);  // what is wrong is in the exception
    for (const Json& pair : about_.at("state")) {
      names_.push_back(pair.at("input"));
      if (!pair.at("output").is_null()) moving_.push_back(names_.size() - 1);
    }
    Ort::Session init = open("init");
    const vector<string> open_sizes = about_.value("sizes", vector<string>{});
    vector<Ort::Value> numbers;
    for (const string& name : open_sizes) {
      require(sizes.count(name) == 1 && sizes.at(name) > 0, "the state requires a number for its open size '" + name + "'; Trainer(bundle, {{\"" + name + "\", 5}}) gives one");
      numbers.push_back(tensor(Array::of<int64_t>("int64", {}, {sizes.at(name)})));
    }
    require(sizes.size() == open_sizes.size(), "sizes requires names of the state's open sizes, " + quoted(open_sizes));
    state_ = run(init, open_sizes, {numbers.begin(), numbers.end()}, names_);
    train_ = open("train");
    if (const Json& rate = about_.at("learning_rate"); !rate.is_null()) {
      require(rate.at("dtype") == "float32", "a learning rate in float32 is required");
      if (rate.at("value").is_number()) learning_rate = rate.at("value");
    }
  }

  const Json& about() const { return about_; }
  size_t steps() const { return steps_; }

  // Does a step, and returns its loss before the update.
  float step(const Arrays& feeds) { return step(feeds, {}).loss; }

  // Does a step, and returns some of its outputs, too: metrics, gradients, new values of the state.
  Step step(const Arrays& feeds, const vector<string>& asked) {
    const vector<string> known = names_of(about_.at("data"));
    for (const auto& feed : feeds)
      require(std::find(known.begin(), known.end(), feed.first) != known.end(), "feed '" + feed.first + "' must be one of the data inputs " + quoted(known));
    check_outputs(asked);
    const vector<Ort::Value> data = checked(about_.at("data"), feeds);
    vector<string> inputs = names_, outputs{about_.at("loss")};
    vector<const OrtValue*> values;
    for (const Ort::Value& value : state_) values.push_back(value);
    for (const size_t place : moving_) outputs.push_back(about_.at("state")[place].at("output"));
    Ort::Value rate{nullptr};
    if (const Json& scaled = about_.at("learning_rate"); !scaled.is_null()) {
      require(std::isfinite(learning_rate), "learning_rate requires a finite number, got " + std::to_string(learning_rate));
      require(std::isfinite(float(learning_rate)), "learning_rate requires a number that float32 holds, got " + Json(learning_rate).dump());
      inputs.push_back(scaled.at("name"));
      rate = tensor(Array::of<float>("float32", {}, {float(learning_rate)}));
      values.push_back(rate);
    }
    for (const Json& input : about_.at("data")) inputs.push_back(input.at("name"));
    for (const Ort::Value& value : data) values.push_back(value);
    for (const string& name : asked)
      if (std::find(outputs.begin(), outputs.end(), name) == outputs.end()) outputs.push_back(name);
    vector<Ort::Value> results = run(train_, inputs, values, outputs);
    const auto told = results[0].GetTensorTypeAndShapeInfo();
    require(told.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && told.GetElementCount() == 1, "a loss in float32 is required");
    const float loss = *results[0].GetTensorData<float>();
    require(std::isfinite(loss), "step " + std::to_string(steps_ + 1) + ": the loss must be finite, got " + (std::isnan(loss) ? "nan" : "inf") + not_finite(feeds));
    Step done{loss, {}};
    for (const string& name : asked) done.outputs[name] = array(results[size_t(std::find(outputs.begin(), outputs.end(), name) - outputs.begin())]);
    for (size_t place = 0; place < moving_.size(); place++) state_[moving_[place]] = std::move(results[place + 1]);
    steps_++;
    return done;
  }

  // Loss and metrics on data: means over batches, weighted by their numbers of samples, or what running totals give. Dropout is off,
  // normalizations use their running statistics, and no state changes.
  Logs evaluate(const Data& data, const BatchOptions& options = {}) {
    const Json& part = part_of("eval", "evaluating");
    const Table table = opened(part, data, options);
    return scores(part, table, complete(table, options));
  }

  // The files of the model that predicts, with the weights as they are now.
  std::map<string, string> trained() const {
    std::map<string, string> contents;
    for (const string& name : files_of("predict")) contents[name] = file(name);
    for (size_t place = 0; place < state_.size(); place++) {
      const Json &pair = about_.at("state")[place], &bytes = pair.at("predict");
      if (is_open(place)) append_weight(contents.at(files_of("predict")[0]), names_[place], array(state_[place]));
      if (bytes.is_null()) continue;
      const auto held = state_[place].GetTensorTypeAndShapeInfo();
      const Dtype& kind = dtype_of(pair.at("dtype"));
      const size_t needed = held.GetElementCount() * kind.size;
      string& content = contents.at(bytes.at("file"));
      const Json &offset = bytes.at("offset"), &length = bytes.at("length");
      const bool fits = held.GetElementType() == kind.type && offset.is_number_unsigned() && length == needed && needed <= content.size() &&
                        offset.get<size_t>() <= content.size() - needed;
      require(fits, "'" + pair.at("input").get<string>() + "' requires a place for its " + std::to_string(needed) + " bytes in a file of the model, got " + bytes.dump());
      content.replace(offset.get<size_t>(), needed, static_cast<const char*>(state_[place].GetTensorRawData()), needed);
    }
    return contents;
  }

  // The model's own outputs for data, with the weights as they are now; targets need not be there.
  Arrays predict(const Data& data, const BatchOptions& options = {}) const {
    const Json& part = part_of("predict", "predicting");
    const Table table = opened(part, data, options);
    const vector<vector<size_t>> batches = complete(table, options);
    std::map<string, string> contents = trained();
    const string model = contents.extract(files_of("predict")[0]).mapped();
    Ort::SessionOptions opening;
    vector<std::basic_string<ORTCHAR_T>> files;
    vector<char*> buffers;
    vector<size_t> lengths;
    for (auto& [name, content] : contents) {
      files.push_back(std::filesystem::path(name).native());
      buffers.push_back(content.data());
      lengths.push_back(content.size());
    }
    if (!files.empty()) opening.AddExternalInitializersFromFilesInMemory(files, buffers, lengths);
    Ort::Session session(environment_, model.data(), model.size(), opening);
    const vector<string> inputs = names_of(part.at("data")), outputs = names_of(part.at("predictions"));
    std::map<string, vector<Array>> collected;
    for (const vector<size_t>& rows : batches) {
      const vector<Ort::Value> values = checked(part.at("data"), table.feeds(rows));
      const vector<Ort::Value> results = run(session, inputs, {values.begin(), values.end()}, outputs);
      for (size_t place = 0; place < outputs.size(); place++) collected[outputs[place]].push_back(array(results[place]));
    }
    Arrays predictions;
    for (const Json& output : part.at("predictions")) predictions[output.at("name")] = joined(output, collected.at(output.at("name")), batches, table.layout);
    return predictions;
  }

  // What training has changed of the model, as a safetensors file of a few kB beside a base of any size: `ll.merge` in Python takes it.
  string adapter() const {
    const string digest = about_.value("digest", "");
    require(!digest.empty(), "an adapter requires a bundle of version 2, got one of version 1; export it again");
    Arrays arrays;
    for (const auto& [name, place] : changed()) arrays[name] = array(state_[place]);
    return sealed("lstm_lower.adapter.1", "\"bundle\": \"" + digest + "\"", arrays);
  }

  // Puts an adapter of this bundle in place of what training has changed of the model.
  void set_adapter(const string& file) {
    const auto [arrays, notes] = unsealed(file, "lstm_lower.adapter.1", "a complete adapter of this bundle");
    require(notes.contains("bundle") && notes["bundle"] == about_.value("digest", ""), "an adapter of this bundle is required, got one of another");
    const std::map<string, size_t> names = changed();
    require(arrays.size() == names.size(), "an adapter requires " + std::to_string(names.size()) + " values, got " + std::to_string(arrays.size()));
    vector<std::pair<size_t, Ort::Value>> next;
    for (const auto& [name, position] : names) {
      require(arrays.count(name) == 1, "an adapter requires '" + name + "', got none");
      next.emplace_back(position, fitting(name, arrays.at(name), position));
    }
    for (auto& [position, value] : next) state_[position] = std::move(value);
  }

  // A checkpoint: the state, and where the training is, with notes that `resume` returns. Python and JavaScript go on from it, too.
  string checkpoint(const Json& notes = Json::object()) const {
    const string rate = std::isfinite(learning_rate) ? Json(learning_rate).dump() : "NaN";
    const string held = "\"steps\": " + std::to_string(steps_) + ", \"learning_rate\": " + rate + ", \"notes\": " + write_numbers(notes);
    return sealed("lstm_lower.checkpoint.1", held + ", \"arithmetic\": {\"providers\": \"onnxruntime in C++\"}", state());
  }

  // Writes a checkpoint, whole or not at all; the one before it stays as `<path>.previous`.
  void save(const string& path, const Json& notes = Json::object()) const {
    const string complete = path + ".lstm-lower", content = checkpoint(notes);
    std::ofstream file(complete, std::ios::binary);
    file.write(content.data(), std::streamsize(content.size()));
    file.close();
    require(bool(file), path + ": a place that can be written is required");
    if (std::filesystem::exists(path)) std::filesystem::copy_file(path, path + ".previous", std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(complete, path);
  }

  // Goes on from a checkpoint of C++, Python or JavaScript, and returns its notes.
  Json resume(const string& path) { return take(read_file(path), path + ": "); }

  // Goes on from the bytes of a checkpoint.
  Json take(const string& file, const string& what = "") {
    const auto [arrays, held] = unsealed(file, "lstm_lower.checkpoint.1", what + "a complete checkpoint");
    const Json steps = held.value("steps", Json()), rate = held.value("learning_rate", Json()), notes = held.value("notes", Json());
    require(steps.is_number_unsigned() && notes.is_object(), what + "a complete checkpoint is required, got a damaged one (its notes lack steps or notes of a run)");
    const bool is_scaled = !about_.at("learning_rate").is_null();
    require(!is_scaled || rate.is_number(), what + "a learning rate is required, got nan");
    set_state(arrays);
    steps_ = steps;
    if (is_scaled) learning_rate = rate;
    return notes;
  }

  // Trains on all samples, and returns a record per epoch: `epoch` from 1 on, means of `loss` and of the step's metrics, `learning_rate`, and of
  // the validation `val_loss` and `val_<metric>`.
  vector<Logs> fit(const Data& data, const FitOptions& options = {}) {
    require(options.epochs > 0, "epochs requires a whole number, at least 1, got 0");
    const Layout layout(about_.at("data"), about_.at("data"));
    const Padding padding{options.pad, options.lengths, options.buckets};
    padding.check(layout);
    const size_t size = layout.size_of(options.batch_size);
    const Table table(layout, padding, data);
    const BatchOptions scoring{size, options.pad, options.lengths};
    // What cannot be evaluated is told before anything is trained.
    if (options.validation != nullptr) complete(opened(part_of("eval", "evaluating"), *options.validation, scoring), scoring);
    vector<string> metrics;
    for (const Json& output : about_.at("outputs"))
      if (output.at("shape").is_array() && output.at("shape").empty()) metrics.push_back(output.at("name"));
    vector<Logs> history;
    bool goes_on = true;
    for (size_t epoch = 0; epoch < options.epochs && goes_on; epoch++) {
      vector<size_t> rows(table.count);
      std::iota(rows.begin(), rows.end(), size_t(0));
      if (options.shuffle) rows = Permutation(options.seed, epoch).rows(table.count);
      Logs sums;
      size_t done = 0;
      for (const vector<size_t>& some : table.batches(rows, size)) {
        const Step stepped = step(table.feeds(some), metrics);
        sums["loss"] += double(stepped.loss) * double(some.size());
        for (const auto& [name, value] : stepped.outputs) sums[name] += number_of(value) * double(some.size());
        done += some.size();
        if (options.after_step && !(goes_on = options.after_step(stepped.loss, epoch))) break;
      }
      Logs logs{{"epoch", double(epoch + 1)}};
      for (const auto& [name, sum] : sums) logs[name] = sum / double(done);
      if (std::isfinite(learning_rate)) logs["learning_rate"] = learning_rate;
      if (options.validation != nullptr && goes_on)
        for (const auto& [name, score] : evaluate(*options.validation, scoring)) logs["val_" + name] = score;
      history.push_back(logs);
      if (goes_on && options.after_epoch) goes_on = options.after_epoch(logs);
    }
    return history;
  }

  // Copies of the state by input.
  Arrays state() const {
    Arrays held;
    for (size_t place = 0; place < names_.size(); place++) held[names_[place]] = array(state_[place]);
    return held;
  }

  // Puts values in place of the whole state.
  void set_state(const Arrays& values) {
    string some;
    for (size_t place = 0; place < std::min<size_t>(4, names_.size()); place++) some += (place ? ", '" : "'") + names_[place] + "'";
    const string what = "state requires the " + std::to_string(names_.size()) + " values " + some + (names_.size() > 4 ? ", …" : "") + ", got ";
    for (const auto& entry : values)
      require(std::find(names_.begin(), names_.end(), entry.first) != names_.end(), what + "'" + entry.first + "', which is none of them");
    for (const string& name : names_) require(values.count(name) == 1, what + "none of '" + name + "'");
    vector<Ort::Value> next;
    for (size_t place = 0; place < names_.size(); place++) next.push_back(fitting(names_[place], values.at(names_[place]), place));
    state_ = std::move(next);
  }

 private:
  // What evaluates or predicts.
  const Json& part_of(const string& file, const string& what) const {
    string names;
    for (const auto& [name, _] : about_.at("files").items()) names += (names.empty() ? "" : ", ") + name;
    require(about_.contains(file) && about_.at("files").contains(file), what + " requires a bundle with " + file + ".onnx, got one of [" + names + "]; export it with all its files");
    return about_.at(file);
  }

  Table opened(const Json& part, const Data& data, const BatchOptions& options) const {
    const Layout layout(part.at("data"), about_.at("data"));
    return Table(layout, Padding{options.pad, options.lengths, {}}.of(layout), data);
  }

  // Batches of all samples in their order: what were left out at the end would be missing in a mean.
  static vector<vector<size_t>> complete(const Table& table, const BatchOptions& options) {
    const size_t fixed = table.layout.batch_size.value_or(1);
    require(table.count % fixed == 0, "data requires a multiple of " + std::to_string(fixed) + " samples, the batch size that the model fixes, got " + std::to_string(table.count));
    vector<size_t> rows(table.count);
    std::iota(rows.begin(), rows.end(), size_t(0));
    return table.batches(rows, table.layout.batch_size.value_or(table.layout.size_of(options.batch_size)));
  }

  Logs scores(const Json& part, const Table& table, const vector<vector<size_t>>& batches) {
    if (!eval_) eval_ = open("eval");
    vector<string> names, outputs;
    for (const Json& total : part.at("totals")) outputs.push_back(total.at("output"));
    const size_t totals = outputs.size();
    const auto add = [&](const string& name) {
      if (has_output(eval_, name)) names.push_back(name), outputs.push_back(name);
    };
    if (about_.at("loss").is_string()) add(about_.at("loss"));
    for (const Json& metric : part.at("metrics"))
      if (metric.at("shape").is_array() && metric.at("shape").empty()) add(metric.at("name"));
    require(!names.empty(), "evaluating requires an evaluation with a loss or a metric, got one with neither");
    vector<string> inputs = part.at("state");
    vector<Ort::Value> counted;
    for (const Json& total : part.at("totals")) inputs.push_back(total.at("input")), counted.push_back(tensor(first_of(total)));
    for (const string& name : names_of(part.at("data"))) inputs.push_back(name);
    Logs sums;
    for (const vector<size_t>& rows : batches) {
      const vector<Ort::Value> feeds = checked(part.at("data"), table.feeds(rows));
      vector<const OrtValue*> values;
      for (const Json& name : part.at("state")) values.push_back(state_[size_t(std::find(names_.begin(), names_.end(), name) - names_.begin())]);
      for (const Ort::Value& value : counted) values.push_back(value);
      for (const Ort::Value& value : feeds) values.push_back(value);
      vector<Ort::Value> results = run(eval_, inputs, values, outputs);
      for (size_t place = 0; place < names.size(); place++) {
        const double score = number_of(array(results[totals + place]));
        const Json& whole = part.at("of_all_batches");
        const bool is_whole = std::find(whole.begin(), whole.end(), names[place]) != whole.end();
        const string name = about_.at("loss") == names[place] ? "loss" : names[place];
        sums[name] = is_whole ? score : sums[name] + score * double(rows.size()) / double(table.count);
      }
      std::move(results.begin(), results.begin() + ptrdiff_t(totals), counted.begin());
    }
    return sums;
  }

  // What a running total is before the first batch.
  static Array first_of(const Json& total) {
    const Shape shape = total.at("shape");
    const Json& first = total.at("first");
    const auto number = [](const Json& value) { return value.is_string() ? std::stod(value.get<string>()) : value.get<double>(); };
    vector<double> numbers(product(shape, 0, shape.size()), first.is_array() ? 0 : number(first));
    for (size_t place = 0; first.is_array() && place < numbers.size(); place++) numbers[place] = number(first.at(place));
    return {total.at("dtype"), shape, bytes_of(total.at("dtype"), numbers, "a total")};
  }

  static bool has_output(const Ort::Session& session, const string& name) {
    Ort::AllocatorWithDefaultOptions allocator;
    for (size_t place = 0; place < session.GetOutputCount(); place++)
      if (name == session.GetOutputNameAllocated(place, allocator).get()) return true;
    return false;
  }

  // Outputs of several batches as one, along the axis of the samples.
  static Array joined(const Json& output, const vector<Array>& arrays, const vector<vector<size_t>>& batches, const Layout& layout) {
    if (arrays.size() == 1) return arrays[0];
    const string what = "output '" + output.at("name").get<string>() + "' requires ";
    const Json& declared = output.at("shape");
    vector<size_t> fitting, named;
    for (size_t axis = 0; axis < arrays[0].shape.size(); axis++) {
      bool fits = true;
      for (size_t place = 0; place < arrays.size(); place++) fits = fits && axis < arrays[place].shape.size() && size_t(arrays[place].shape[axis]) == batches[place].size();
      if (!fits) continue;
      fitting.push_back(axis);
      for (const Json& input : layout.inputs)
        if (const Json& shape = input.at("shape"); declared.is_array() && declared.at(axis).is_string() && !shape.empty() && shape.at(layout.axes.at(input.at("name"))) == declared[axis]) {
          named.push_back(axis);
          break;
        }
    }
    const vector<size_t>& axes = named.size() == 1 ? named : fitting;
    require(axes.size() == 1, what + "an axis of samples, " + std::to_string(batches[0].size()) + " in the first batch, got " + sizes(arrays[0].shape) + "; predict with a batch_size of all samples");
    const auto rest = [&](Shape shape) {
      shape.erase(shape.begin() + ptrdiff_t(axes[0]));
      return shape;
    };
    for (const Array& array : arrays)
      require(rest(array.shape) == rest(arrays[0].shape), what + "one shape in all batches to be put together, got " + sizes(arrays[0].shape) + " and others; predict batch by batch");
    return concatenated(arrays, axes[0]);
  }

  void check_outputs(const vector<string>& asked) const {
    vector<string> names{about_.at("loss")};
    for (const string& name : names_of(about_.at("outputs"))) names.push_back(name);
    for (const Json& pair : about_.at("state"))
      for (const char* kind : {"output", "gradient"})
        if (pair.at(kind).is_string()) names.push_back(pair.at(kind));
    for (const string& name : asked) require(std::find(names.begin(), names.end(), name) != names.end(), "output '" + name + "' must be one of " + quoted(names));
  }

  // Where numbers that are not finite may come from.
  string not_finite(const Arrays& feeds) const {
    for (size_t place = 0; place < names_.size(); place++) {
      const Json& pair = about_.at("state")[place];
      if (pair.at("role") == "weight" && !pair.at("output").is_null() && !is_finite(array(state_[place])))
        return "; '" + names_[place] + "' already held such numbers: a step whose own loss was finite wrote them, of an infinite feed or gradient; begin again from a checkpoint";
    }
    string origin;
    for (const auto& [name, value] : feeds)
      if (origin.empty() && !is_finite(value)) origin = "; input '" + name + "' has such numbers";
    return origin + "; the state is as before that step. A smaller learning rate or clip_norm may prevent it; in Python, "
                    "ll.Trainer(step).resume(checkpoint) and first_nonfinite(feeds) name the node that made the first such number";
  }

  static bool is_finite(const Array& array) {
    const auto all = [&](auto kind) {
      const auto* numbers = array.data<decltype(kind)>();
      return std::all_of(numbers, numbers + array.bytes.size() / sizeof kind, [](auto number) { return std::isfinite(number); });
    };
    return array.dtype == "float32" ? all(float()) : array.dtype != "float64" || all(double());
  }

  // Whether a value of the state is an input of predict.onnx, since its sizes are open until training starts.
  bool is_open(size_t place) const {
    const Json& inputs = about_.at("predict").at("state");
    return std::find(inputs.begin(), inputs.end(), names_[place]) != inputs.end();
  }

  // Gives an input of a model a value: what stands behind a message of protobuf is read as part of it.
  static void append_weight(string& model, const string& name, const Array& value) {
    string tensor;
    for (const int64_t size : value.shape) tensor += varint(1 << 3) + varint(uint64_t(size));       // TensorProto.dims
    tensor += varint(2 << 3) + varint(dtype_of(value.dtype).type) + field(8, name) + field(9, value.bytes);  // .data_type, .name, .raw_data
    model += field(7, field(5, tensor));                                                            // ModelProto.graph, GraphProto.initializer
  }

  static string field(uint64_t number, const string& content) { return varint(number << 3 | 2) + varint(content.size()) + content; }

  static string varint(uint64_t number) { return number < 128 ? string(1, char(number)) : char(number % 128 | 128) + varint(number / 128); }

  // A value for a place of the state, of the dtype and the shape of what is there.
  Ort::Value fitting(const string& name, const Array& value, size_t place) const {
    const auto held = state_[place].GetTensorTypeAndShapeInfo();
    const string dtype = about_.at("state")[place].at("dtype");
    require(value.dtype == dtype, "state '" + name + "' requires dtype " + dtype + ", got " + value.dtype);
    require(value.shape == held.GetShape(), "state '" + name + "' requires shape " + sizes(held.GetShape()) + ", got " + sizes(value.shape));
    return tensor(value);
  }

  // Names of the framework, and places in the state, of what training changes of the model; those of the step where they are not unique.
  std::map<string, size_t> changed() const {
    std::map<string, size_t> named, own;
    for (size_t place = 0; place < names_.size(); place++) {
      const Json& pair = about_.at("state")[place];
      if (pair.at("output").is_null() || (pair.at("predict").is_null() && !is_open(place))) continue;
      own[names_[place]] = place;
      named[pair.at("variable").is_null() ? names_[place] : pair.at("variable").get<string>()] = place;
    }
    return named.size() == own.size() ? named : own;
  }

  // training.json, compared with the hash that stands in it.
  static Json described(const string& folder) {
    const string text = read_file(folder + "/training.json");
    Json about = Json::parse(text);
    require(about.value("format", "") == "lstm-lower.bundle", "training.json requires the format 'lstm-lower.bundle'");
    const Json version = about.at("version");
    require(version == 1 || version == 2, "a bundle of version 1 or 2 is required, got " + version.dump());
    if (version == 2) {
      const string digest = about.at("digest"), before = "\"digest\": \"";
      const size_t place = text.find(before + digest);
      string unsealed = text;
      if (place != string::npos && digest.size() == 64) unsealed.replace(place + before.size(), 64, 64, '0');
      require(sha256(unsealed) == digest, "training.json requires the hash that stands in it, got another one: it is damaged or was changed");
    }
    return about;
  }

  // The files of a model in training.json, which lie in the bundle's own folder.
  vector<string> files_of(const string& model) const {
    const Json& entry = about_.at("files").at(model);
    vector<string> names = entry.at("data");
    names.insert(names.begin(), entry.at("model").get<string>());
    for (const string& name : names) {
      const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char letter) { return letter && (std::isalnum(letter) || std::strchr("_.-", letter)); });
      const string ending = std::filesystem::path(name).extension().string();
      require(plain && name[0] != '.' && (ending == ".onnx" || ending == ".data"), "names of .onnx and .data files beside training.json are required, got " + name);
    }
    return names;
  }

  // A file of the bundle, compared with its hash.
  string file(const string& name) const {
    const string path = folder_ + "/" + name;
    require(std::filesystem::symlink_status(path).type() == std::filesystem::file_type::regular, path + ": a plain file is required");
    string bytes = read_file(path);
    if (about_.at("version") == 1) return bytes;
    const Json& held = about_.at("hashes").at(name);
    const bool is_same = held.at("bytes") == bytes.size() && held.at("sha256") == sha256(bytes);
    require(is_same, name + " requires the " + held.at("bytes").dump() + " bytes with the hash that training.json names, got others: it is damaged, or of another bundle");
    return bytes;
  }

  Ort::Session open(const string& model) {
    const vector<string> names = files_of(model);
    // A file of weights belongs to several models.
    for (const string& name : names)
      if (compared_.insert(name).second) file(name);
    return Ort::Session(environment_, std::filesystem::path(folder_ + "/" + names[0]).c_str(), Ort::SessionOptions());
  }

  static vector<string> names_of(const Json& inputs) {
    vector<string> names;
    for (const Json& input : inputs) names.push_back(input.at("name"));
    return names;
  }

  // Feeds as tensors in the order of inputs, whose sizes are equal where they share a name.
  vector<Ort::Value> checked(const Json& inputs, const Arrays& feeds) const {
    std::map<string, std::pair<int64_t, string>> named;
    vector<string> missing;
    for (const string& name : names_of(inputs))
      if (feeds.count(name) == 0) missing.push_back(name);
    require(missing.empty(), "input '" + (missing.empty() ? "" : missing[0]) + "' requires a value, got nothing (missing: " + quoted(missing) + ")");
    vector<Ort::Value> values;
    for (const Json& input : inputs) {
      const string name = input.at("name"), what = "input '" + name + "' requires ";
      const Array& array = feeds.at(name);
      const Json& wanted = input.at("shape");
      require(input.at("dtype") == array.dtype, what + "dtype " + input.at("dtype").get<string>() + ", got " + array.dtype);
      require(wanted.size() == array.shape.size(), what + "rank " + std::to_string(wanted.size()) + " " + sizes(wanted) + ", got shape " + sizes(array.shape));
      for (size_t axis = 0; axis < array.shape.size(); axis++) {
        Json expected = wanted[axis];
        string origin;
        if (expected.is_string()) {
          const auto& [size, first] = named.try_emplace(expected, array.shape[axis], name).first->second;
          origin = " (" + wanted[axis].get<string>() + " = " + std::to_string(size) + " from '" + first + "')";
          expected = size;
        }
        const string place = " (axis " + std::to_string(axis) + ")";
        require(expected.is_null() || expected == array.shape[axis], what + "shape " + sizes(wanted) + origin + ", got " + sizes(array.shape) + place);
        require(array.shape[axis] > 0, what + "a batch of one or more, got shape " + sizes(array.shape));
      }
      values.push_back(tensor(array));
    }
    return values;
  }

  static Ort::Value tensor(const Array& array) {
    const Dtype& kind = dtype_of(array.dtype);
    require(array.bytes.size() == product(array.shape, 0, array.shape.size()) * kind.size, "an array requires as many numbers as its shape says");
    Ort::AllocatorWithDefaultOptions allocator;
    Ort::Value value = Ort::Value::CreateTensor(allocator, array.shape.data(), array.shape.size(), kind.type);
    std::memcpy(value.GetTensorMutableRawData(), array.bytes.data(), array.bytes.size());
    return value;
  }

  static Array array(const Ort::Value& value) {
    const auto told = value.GetTensorTypeAndShapeInfo();
    for (const auto& [name, kind] : dtypes())
      if (kind.type == told.GetElementType()) return {name, told.GetShape(), string(static_cast<const char*>(value.GetTensorRawData()), told.GetElementCount() * kind.size)};
    throw std::runtime_error("outputs of numbers are required");
  }

  static vector<Ort::Value> run(Ort::Session& session, const vector<string>& inputs, const vector<const OrtValue*>& values, const vector<string>& outputs) {
    vector<const char*> in, out;
    for (const string& name : inputs) in.push_back(name.c_str());
    for (const string& name : outputs) out.push_back(name.c_str());
    vector<Ort::Value> results;
    vector<OrtValue*> raw(out.size(), nullptr);
    Ort::ThrowOnError(Ort::GetApi().Run(session, Ort::RunOptions(), in.data(), values.data(), in.size(), out.data(), out.size(), raw.data()));
    for (OrtValue* each : raw) results.emplace_back(each);
    return results;
  }

  string folder_;
  std::set<string> compared_;
  Json about_;
  Ort::Env environment_{nullptr};
  Ort::Session train_{nullptr}, eval_{nullptr};
  vector<string> names_;
  vector<size_t> moving_;
  vector<Ort::Value> state_;
  size_t steps_ = 0;
};

}  // namespace lstm_lower
