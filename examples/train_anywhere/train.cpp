// Trains a bundle in C++: ./train BUNDLE DATA [STEPS [BATCH_SIZE]], where DATA is a folder with a file NAME.npy for every input. Tells how the
// loss falls, prints all losses and the classes as JSON, and writes the trained model, predict.onnx with its new weights, into the folder
// from which it is started. README.md says how to compile it.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <onnxruntime_cxx_api.h>

using Json = nlohmann::json;
using std::string, std::vector;

void require(bool right, const string& message) {
  if (!right) throw std::runtime_error(message);
}

struct Dtype {
  const char* descr;  // as .npy files name it
  ONNXTensorElementDataType type;
  size_t size;
};
const std::map<string, Dtype> DTYPES{
    {"float32", {"<f4", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4}}, {"float64", {"<f8", ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8}},
    {"float16", {"<f2", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2}}, {"int64", {"<i8", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8}},
    {"int32", {"<i4", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4}}, {"uint8", {"|u1", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1}},
    {"bool", {"|b1", ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1}}};

// A text as a terminal may have it: names in files are anybody's, and control characters in them would command it.
string shown(const string& text) {
  std::ostringstream out;
  for (const unsigned char letter : text)
    if (letter >= ' ' && letter <= '~') out << letter;
    else out << "\\x" << std::hex << std::setw(2) << std::setfill('0') << int(letter);
  return out.str();
}

// A path in a folder or below it, of a name that stands in a file.
string inside(const string& folder, const string& name) {
  const std::filesystem::path path(name);
  const bool leaves = std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  require(!name.empty() && !path.has_root_path() && !leaves && name.find_first_of(string("\\\0", 2)) == string::npos,
          "a name that stays in its folder is required, got " + name);
  return folder + "/" + name;
}

// The files of a model in training.json, which lie in the bundle's own folder.
vector<string> filesOf(const Json& entry) {
  vector<string> names = entry.at("data");
  names.push_back(entry.at("model"));
  for (const string& name : names) {
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char letter) { return letter && (std::isalnum(letter) || std::strchr("_.-", letter)); });
    const string ending = std::filesystem::path(name).extension().string();
    require(plain && name[0] != '.' && (ending == ".onnx" || ending == ".data"), "names of .onnx and .data files beside training.json are required, got " + name);
  }
  return names;
}

string read(const string& path) {
  std::ifstream file(path, std::ios::binary);
  require(bool(file), "a readable file is required, got " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t product(vector<int64_t>::const_iterator begin, vector<int64_t>::const_iterator end) {
  size_t count = 1;
  for (; begin != end; ++begin) {
    require(*begin >= 0 && (*begin == 0 || count <= size_t(PTRDIFF_MAX) / 16 / size_t(*begin)), "sizes of an array that can be are required");
    count *= size_t(*begin);
  }
  return count;
}

Ort::Value tensor(const string& dtype, const vector<int64_t>& shape, const void* bytes) {
  const Dtype& kind = DTYPES.at(dtype);
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value value = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), kind.type);
  std::memcpy(value.GetTensorMutableRawData(), bytes, product(shape.begin(), shape.end()) * kind.size);
  return value;
}

// The samples of one input: an array, as numpy saves it, and the axis along which samples lie, the first one whose size is open.
class Samples {
 public:
  Samples(const Json& input, const string& folder) : dtype_(input.at("dtype")) {
    const string name = input.at("name"), text = read(inside(folder, name) + ".npy"), what = "input '" + name + "' requires ";
    require(text.size() > 12 && text.compare(0, 6, "\x93NUMPY") == 0, what + "a .npy file");
    const size_t before = text[6] == 1 ? 10 : 12;  // the length of the header has two bytes in version 1, four later
    size_t length = 0;
    for (size_t place = before; place-- > 8;) length = length * 256 + static_cast<unsigned char>(text[place]);
    require(text.size() >= before + length && length < 1 << 16, what + "a whole .npy file");
    const string header = text.substr(before, length);
    std::smatch found;
    require(DTYPES.count(dtype_), what + dtype_ + ", which this program does not read");
    require(header.find(string("'") + DTYPES.at(dtype_).descr + "'") != string::npos, what + dtype_ + ", got " + header);
    require(header.find("'fortran_order': False") != string::npos, what + "an array in C's order");
    require(std::regex_search(header, found, std::regex(R"('shape': \(([^)]*)\))")), what + "a shape");
    const string sizes = found[1];
    std::istringstream stream(sizes);
    for (string size; std::getline(stream, size, ',') && size.find_first_of("0123456789") != string::npos;) shape_.push_back(std::stoll(size));
    const Json& wanted = input.at("shape");
    bool fits = wanted.size() == shape_.size() && !shape_.empty();
    for (size_t axis = 0; fits && axis < shape_.size(); axis++) fits = !wanted[axis].is_number() || wanted[axis] == shape_[axis];
    require(fits, what + "shape " + wanted.dump() + ", got (" + sizes + ")");
    const auto open = std::find_if(wanted.begin(), wanted.end(), [](const Json& size) { return !size.is_number(); });
    axis_ = open == wanted.end() ? 0 : open - wanted.begin();
    bytes_ = text.substr(before + length);
    require(bytes_.size() == product(shape_.begin(), shape_.end()) * DTYPES.at(dtype_).size, what + "as many numbers as its shape says");
  }

  size_t count() const { return size_t(shape_[axis_]); }

  // `size` samples of which the first is number `first`; behind the last one comes the first one again.
  Ort::Value batch(size_t first, size_t size) const {
    const size_t outer = product(shape_.begin(), shape_.begin() + axis_);
    const size_t inner = product(shape_.begin() + axis_ + 1, shape_.end()) * DTYPES.at(dtype_).size;
    string bytes;
    for (size_t block = 0; block < outer; block++)
      for (size_t row = first; row < first + size; row++) bytes.append(bytes_, (block * count() + row % count()) * inner, inner);
    vector<int64_t> shape = shape_;
    shape[axis_] = int64_t(size);
    return tensor(dtype_, shape, bytes.data());
  }

 private:
  string dtype_, bytes_;
  vector<int64_t> shape_;
  ptrdiff_t axis_;
};

vector<Ort::Value> run(Ort::Session& session, const vector<string>& inputs, const vector<Ort::Value>& values, const vector<string>& outputs) {
  vector<const char*> in, out;
  for (const string& name : inputs) in.push_back(name.c_str());
  for (const string& name : outputs) out.push_back(name.c_str());
  return session.Run(Ort::RunOptions(), in.data(), values.data(), in.size(), out.data(), out.size());
}

void train(const string& folder, const string& data, size_t steps, size_t size) {
  const Json about = Json::parse(read(folder + "/training.json"));
#ifndef _WIN32
  setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // from 1.32 on, the library for Linux reports to its maker otherwise
#endif
  Ort::Env environment(ORT_LOGGING_LEVEL_FATAL);  // what is wrong is in the exception
  Ort::SessionOptions options;
  const auto open = [&](const string& path) { return Ort::Session(environment, std::filesystem::path(path).c_str(), options); };
  Ort::Session init = open(folder + "/init.onnx"), step = open(folder + "/train.onnx");

  // What a step takes: its state, the learning rate, the data. What it gives: the loss, and the new values of a part of the state.
  vector<string> inputs, outputs{about.at("loss")};
  vector<size_t> moving;
  for (const Json& pair : about.at("state")) {
    if (!pair.at("output").is_null()) {
      moving.push_back(inputs.size());
      outputs.push_back(pair.at("output"));
    }
    inputs.push_back(pair.at("input"));
  }
  const size_t states = inputs.size();
  vector<Ort::Value> values = run(init, {}, {}, inputs);
  if (const Json& rate = about.at("learning_rate"); !rate.is_null()) {
    require(rate.at("dtype") == "float32" && rate.at("value").is_number(), "a learning rate in float32 is required");
    const float value = rate.at("value");
    inputs.push_back(rate.at("name"));
    values.push_back(tensor("float32", {}, &value));
  }
  vector<Samples> samples;
  for (const Json& input : about.at("data")) {
    samples.emplace_back(input, data);
    inputs.push_back(input.at("name"));
    require(samples.back().count() > 0 && samples.back().count() == samples[0].count(), "as many samples of every input are required");
  }
  require(!samples.empty(), "a step that takes data is required");
  const size_t count = samples[0].count();
  size = std::min(size, count);

  vector<float> losses;
  for (size_t number = 1; number <= steps; number++) {
    values.erase(values.end() - ptrdiff_t(number == 1 ? 0 : samples.size()), values.end());
    for (const Samples& part : samples) values.push_back(part.batch((number - 1) * size, size));
    vector<Ort::Value> results = run(step, inputs, values, outputs);
    const auto loss = results[0].GetTensorTypeAndShapeInfo();
    require(loss.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && loss.GetElementCount() == 1, "a loss in float32 is required");
    losses.push_back(*results[0].GetTensorData<float>());
    require(std::isfinite(losses.back()), "step " + std::to_string(number) + ": a finite loss is required; lower the learning rate or check the data");
    for (size_t place = 0; place < moving.size(); place++) values[moving[place]] = std::move(results[place + 1]);
    if (number % ((steps + 9) / 10) == 0) std::cerr << "step " << number << " of " << steps << ", loss " << losses.back() << "\n";
  }

  // The trained weights replace bytes of the model that predicts.
  const Json& files = about.at("files").at("predict");
  std::map<string, string> contents;
  for (const string& name : filesOf(files)) {
    require(std::filesystem::symlink_status(folder + "/" + name).type() == std::filesystem::file_type::regular, "a plain file is required, got " + folder + "/" + name);
    contents[name] = read(folder + "/" + name);
  }
  for (size_t place = 0; place < states; place++) {
    const Json &pair = about.at("state")[place], &bytes = pair.at("predict");
    if (bytes.is_null()) continue;
    const auto held = values[place].GetTensorTypeAndShapeInfo();
    const Dtype& kind = DTYPES.at(pair.at("dtype"));
    const size_t needed = held.GetElementCount() * kind.size;
    string& content = contents.at(bytes.at("file"));
    const Json &offset = bytes.at("offset"), &length = bytes.at("length");
    const bool fits = held.GetElementType() == kind.type && offset.is_number_unsigned() && length == needed && needed <= content.size() &&
                      offset.get<size_t>() <= content.size() - needed;
    require(fits, "'" + pair.at("input").get<string>() + "' requires a place for its " + std::to_string(needed) + " bytes in a file of the model, got " + bytes.dump());
    content.replace(offset.get<size_t>(), needed, static_cast<const char*>(values[place].GetTensorRawData()), needed);
  }
  for (const auto& [name, content] : contents) require(bool(std::ofstream(name, std::ios::binary) << content), "a folder that can be written is required");

  Ort::Session predict = open(files.at("model"));
  vector<string> asked;
  vector<Ort::Value> questions;
  for (const Json& input : about.at("predict").at("data")) {
    asked.push_back(input.at("name"));
    questions.push_back(Samples(input, data).batch(0, count));
  }
  const vector<Ort::Value> answers = run(predict, asked, questions, {about.at("predict").at("predictions").at(0).at("name")});
  const vector<int64_t> shape = answers[0].GetTensorTypeAndShapeInfo().GetShape();
  const bool scored = answers[0].GetTensorTypeAndShapeInfo().GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && !shape.empty() && shape.back() > 0;
  require(scored, "a prediction of scores in float32 is required");
  const float* scores = answers[0].GetTensorData<float>();
  vector<ptrdiff_t> classes;
  for (size_t row = 0; row < product(shape.begin(), shape.end() - 1); row++, scores += shape.back())
    classes.push_back(std::max_element(scores, scores + shape.back()) - scores);
  std::cout << Json{{"losses", losses}, {"classes", classes}} << std::endl;
}

int main(int count, char** words) try {
  const auto number = [&](int place, size_t usual) { return count > place ? std::stoul(words[place]) : usual; };
  require(count >= 3 && number(3, 100) >= 1 && number(4, 32) >= 1,
          "a folder, a folder of .npy files, and numbers of steps and samples are required: ./train BUNDLE DATA [STEPS [BATCH_SIZE]]");
  train(words[1], words[2], number(3, 100), number(4, 32));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << shown(error.what()) << "\n";
  return 1;
}
