// Trains bundles of lstm-lower in C++17: one header, which needs onnxruntime's library and JSON for Modern C++.
//
//     lstm_lower::Trainer trainer("bundle");
//     float loss = trainer.step({{"x", x}, {"target", target}});
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
#include <iomanip>
#include <iterator>
#include <map>
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
                                     "; the state is as before that step. A smaller learning rate or clip_norm may prevent it");
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
    const string digest = about_.value("digest", ""), before = "\\\"sha256\\\": \\\"", zeros(64, '0');
    require(!digest.empty(), "an adapter requires a bundle of version 2, got one of version 1; export it again");
    const std::map<string, size_t> names = changed();
    Json header;
    header["__metadata__"]["lstm_lower.adapter.1"] = "{\"bundle\": \"" + digest + "\", \"sha256\": \"" + zeros + "\"}";
    string values;
    for (const auto& [name, place] : names) {
      const Array held = array(state_[place]);
      header[name] = {{"dtype", dtype_of(held.dtype).safetensors}, {"shape", held.shape}, {"data_offsets", {values.size(), values.size() + held.bytes.size()}}};
      values += held.bytes;
    }
    string text = header.dump(), file;
    text.resize((text.size() + 7) / 8 * 8, ' ');
    for (int shift = 0; shift < 64; shift += 8) file += char(uint64_t(text.size()) >> shift);
    file += text + values;
    return file.replace(file.find(before + zeros) + before.size(), 64, sha256(file));
  }

  // Puts an adapter of this bundle in place of what training has changed of the model.
  void set_adapter(const string& file) {
    const string before = "\\\"sha256\\\": \\\"", damaged = "a complete adapter of this bundle is required, got a damaged one";
    uint64_t length = 0;
    for (size_t place = 8; file.size() >= 8 && place-- > 0;) length = length << 8 | static_cast<unsigned char>(file[place]);
    require(file.size() >= 8 && length <= file.size() - 8, damaged);
    const Json header = Json::parse(file.substr(8, length), nullptr, false);
    require(header.is_object() && header.contains("__metadata__") && header["__metadata__"].contains("lstm_lower.adapter.1"), damaged);
    const Json notes = Json::parse(header["__metadata__"]["lstm_lower.adapter.1"].get<string>(), nullptr, false);
    require(notes.is_object() && notes.contains("bundle") && notes.contains("sha256") && notes["sha256"].is_string(), damaged);
    const string digest = notes["sha256"];
    const size_t place = file.find(before + digest);
    require(digest.size() == 64 && place != string::npos && sha256(string(file).replace(place + before.size(), 64, 64, '0')) == digest, damaged);
    require(notes["bundle"] == about_.value("digest", ""), "an adapter of this bundle is required, got one of another");
    const std::map<string, size_t> names = changed();
    require(header.size() == names.size() + 1, "an adapter requires " + std::to_string(names.size()) + " values, got " + std::to_string(header.size() - 1));
    vector<std::pair<size_t, Ort::Value>> next;
    for (const auto& [name, position] : names) {
      require(header.contains(name), "an adapter requires '" + name + "', got none");
      const Array now = array(state_[position]);
      const Json& entry = header[name];
      const bool same = entry.at("dtype") == dtype_of(now.dtype).safetensors && entry.at("shape") == now.shape;
      require(same, "'" + name + "' requires " + now.dtype + sizes(now.shape) + ", got " + entry.at("dtype").dump() + entry.at("shape").dump());
      const size_t first = entry.at("data_offsets").at(0);
      require(first <= file.size() - 8 - length && now.bytes.size() <= file.size() - 8 - length - first, damaged);
      next.emplace_back(position, tensor({now.dtype, now.shape, file.substr(8 + length + first, now.bytes.size())}));
    }
    for (auto& [position, value] : next) state_[position] = std::move(value);
  }

  // Copies of the state by input.
  Arrays state() const {
    Arrays held;
    for (size_t place = 0; place < names_.size(); place++) held[names_[place]] = array(state_[place]);
    return held;
  }

  // Puts values in place of the whole state.
  void set_state(const Arrays& values) {
    vector<Ort::Value> next;
    for (size_t place = 0; place < names_.size(); place++) {
      const auto value = values.find(names_[place]);
      require(value != values.end() && values.size() == names_.size(), "state requires the " + std::to_string(names_.size()) + " values that state() has");
      const Array now = array(state_[place]);
      require(value->second.dtype == now.dtype, "state '" + names_[place] + "' requires dtype " + now.dtype + ", got " + value->second.dtype);
      require(value->second.shape == now.shape, "state '" + names_[place] + "' requires shape " + sizes(now.shape) + ", got " + sizes(value->second.shape));
      next.push_back(tensor(value->second));
    }
    state_ = std::move(next);
  }

 private:
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

  // Feeds as tensors in the order of inputs, whose sizes are equal where they share a name.
  vector<Ort::Value> checked(const Json& inputs, const Arrays& feeds) const {
    std::map<string, std::pair<int64_t, string>> named;
    vector<Ort::Value> values;
    for (const Json& input : inputs) {
      const string name = input.at("name"), what = "input '" + name + "' requires ";
      const auto feed = feeds.find(name);
      require(feed != feeds.end(), what + "a value, got nothing");
      const Array& array = feed->second;
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
