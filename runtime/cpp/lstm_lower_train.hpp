// Trains bundles of lstm-lower in C++17: one header, which needs onnxruntime's library and JSON for Modern C++.
//
//     lstm_lower::Trainer trainer("bundle");
//     float loss = trainer.step({{"x", x}, {"target", target}});
//     trainer.fit({{"x", all_x}, {"target", all_targets}}, {.epochs = 5});      // C++20's names of options
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
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
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

// How `fit` goes on.
struct FitOptions {
  size_t epochs = 1;
  size_t batch_size = 32;  // where the model does not fix it
  bool shuffle = true;     // the order is that of Python and JavaScript with the same seed
  uint64_t seed = 0;
  std::function<bool(float loss, size_t epoch)> after_step;  // false ends the run
};

// A bundle in onnxruntime, with its state.
class Trainer {
 public:
  double learning_rate = NAN;  // of the next step

  // Opens a bundle; every file is compared with its hash.
  explicit Trainer(const string& folder) : folder_(folder), about_(described(folder)) {
#ifndef _WIN32
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // from 1.32 on, the library for Linux reports to its maker otherwise
#endif
    environment_ = Ort::Env(ORT_LOGGING_LEVEL_FATAL);  // what is wrong is in the exception
    for (const Json& pair : about_.at("state")) {
      names_.push_back(pair.at("input"));
      if (!pair.at("output").is_null()) moving_.push_back(names_.size() - 1);
    }
    Ort::Session init = open("init");
    state_ = run(init, {}, {}, names_);
    train_ = open("train");
    if (const Json& rate = about_.at("learning_rate"); !rate.is_null()) {
      require(rate.at("dtype") == "float32", "a learning rate in float32 is required");
      if (rate.at("value").is_number()) learning_rate = rate.at("value");
    }
  }

  const Json& about() const { return about_; }
  size_t steps() const { return steps_; }

  // Does a step, and returns its loss before the update.
  float step(const Arrays& feeds) {
    const vector<string> known = names_of(about_.at("data"));
    for (const auto& feed : feeds)
      require(std::find(known.begin(), known.end(), feed.first) != known.end(), "feed '" + feed.first + "' must be one of the data inputs " + quoted(known));
    const vector<Ort::Value> data = checked(about_.at("data"), feeds);
    vector<string> inputs = names_, outputs{about_.at("loss")};
    vector<const OrtValue*> values;
    for (const Ort::Value& value : state_) values.push_back(value);
    for (const size_t place : moving_) outputs.push_back(about_.at("state")[place].at("output"));
    Ort::Value rate{nullptr};
    if (const Json& scaled = about_.at("learning_rate"); !scaled.is_null()) {
      require(std::isfinite(learning_rate), "learning_rate requires a finite number, got " + std::to_string(learning_rate));
      inputs.push_back(scaled.at("name"));
      rate = tensor(Array::of<float>("float32", {}, {float(learning_rate)}));
      values.push_back(rate);
    }
    for (const Json& input : about_.at("data")) inputs.push_back(input.at("name"));
    for (const Ort::Value& value : data) values.push_back(value);
    vector<Ort::Value> results = run(train_, inputs, values, outputs);
    const auto told = results[0].GetTensorTypeAndShapeInfo();
    require(told.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && told.GetElementCount() == 1, "a loss in float32 is required");
    const float loss = *results[0].GetTensorData<float>();
    require(std::isfinite(loss), "step " + std::to_string(steps_ + 1) + ": the loss must be finite, got " + (std::isnan(loss) ? "nan" : "inf") +
                                     "; the state is as before that step. A smaller learning rate or clip_norm may prevent it; in Python, "
                                     "ll.Trainer(step).resume(checkpoint) and first_nonfinite(feeds) name the node that made the first such number");
    for (size_t place = 0; place < moving_.size(); place++) state_[moving_[place]] = std::move(results[place + 1]);
    steps_++;
    return loss;
  }

  // The files of the model that predicts, with the weights as they are now.
  std::map<string, string> trained() const {
    std::map<string, string> contents;
    for (const string& name : files_of("predict")) contents[name] = file(name);
    for (size_t place = 0; place < state_.size(); place++) {
      const Json &pair = about_.at("state")[place], &bytes = pair.at("predict");
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

  // The model's own outputs for data, with the weights as they are now.
  Arrays predict(const Arrays& feeds) const {
    const Json& part = about_.at("predict");
    std::map<string, string> contents = trained();
    const string model = contents.extract(files_of("predict")[0]).mapped();
    Ort::SessionOptions options;
    vector<std::basic_string<ORTCHAR_T>> files;
    vector<char*> buffers;
    vector<size_t> lengths;
    for (auto& [name, content] : contents) {
      files.push_back(std::filesystem::path(name).native());
      buffers.push_back(content.data());
      lengths.push_back(content.size());
    }
    if (!files.empty()) options.AddExternalInitializersFromFilesInMemory(files, buffers, lengths);
    Ort::Session session(environment_, model.data(), model.size(), options);
    vector<string> inputs, outputs;
    for (const Json& input : part.at("data")) inputs.push_back(input.at("name"));
    for (const Json& output : part.at("predictions")) outputs.push_back(output.at("name"));
    const vector<Ort::Value> data = checked(part.at("data"), feeds);
    const vector<Ort::Value> results = run(session, inputs, {data.begin(), data.end()}, outputs);
    Arrays predictions;
    for (size_t place = 0; place < outputs.size(); place++) predictions[outputs[place]] = array(results[place]);
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

  // Trains on arrays of all samples, and returns the mean loss of each epoch.
  vector<double> fit(const Arrays& data, const FitOptions& options = {}) {
    require(options.epochs > 0, "epochs requires a whole number, at least 1, got 0");
    require(options.batch_size > 0, "batch_size requires a whole number, at least 1, got 0");
    size_t count = 0, size = options.batch_size;
    string first;
    bool is_fixed = false;
    std::map<string, size_t> axes;
    for (const Json& input : about_.at("data")) {
      const string name = input.at("name");
      const Json& shape = input.at("shape");
      const auto array = data.find(name);
      require(array != data.end(), "data requires an array '" + name + "' " + input.at("dtype").get<string>() + sizes(shape) + ", got none");
      const Json& axis = input.contains("sample_axis") ? input.at("sample_axis") : Json();
      axes[name] = axis.is_number() ? axis.get<size_t>() : 0;
      if (shape.empty()) continue;
      require(array->second.shape.size() == shape.size(), "data '" + name + "' requires rank " + std::to_string(shape.size()) + ", got " + sizes(array->second.shape));
      const size_t own = size_t(array->second.shape[axes[name]]);
      require(first.empty() || own == count, "data requires as many samples in every array, got {'" + first + "': " + std::to_string(count) + ", '" + name + "': " + std::to_string(own) + "}");
      if (shape[axes[name]].is_number()) size = shape[axes[name]], is_fixed = true;
      first = name, count = own;
    }
    require(count >= (is_fixed ? size : 1), "data requires at least one batch of " + std::to_string(size) + ", got " + std::to_string(count) + " samples");
    vector<double> means;
    for (size_t epoch = 0; epoch < options.epochs; epoch++) {
      vector<size_t> rows(count);
      std::iota(rows.begin(), rows.end(), size_t(0));
      if (options.shuffle) rows = Permutation(options.seed, epoch).rows(count);
      double total = 0;
      size_t done = 0;
      for (size_t begin = 0; begin < count && begin + (is_fixed ? size : 1) <= count; begin += size) {
        const vector<size_t> some(rows.begin() + ptrdiff_t(begin), rows.begin() + ptrdiff_t(std::min(count, begin + size)));
        Arrays batch;
        for (const auto& [name, axis] : axes) batch[name] = data.at(name).shape.empty() ? data.at(name) : data.at(name).take(some, axis);
        const float loss = step(batch);
        total += double(loss) * double(some.size());
        done += some.size();
        if (options.after_step && !options.after_step(loss, epoch)) {
          means.push_back(total / double(done));
          return means;
        }
      }
      means.push_back(total / double(done));
    }
    return means;
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
      if (pair.at("output").is_null() || pair.at("predict").is_null()) continue;
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
  Ort::Session train_{nullptr};
  vector<string> names_;
  vector<size_t> moving_;
  vector<Ort::Value> state_;
  size_t steps_ = 0;
};

}  // namespace lstm_lower
