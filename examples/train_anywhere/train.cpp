// Trains a bundle in C++: ./train BUNDLE DATA [STEPS [BATCH_SIZE]], where DATA is a folder with a file NAME.npy for every input. Tells how the
// loss falls, prints all losses and the classes as JSON, and writes the trained model, predict.onnx with its new weights, into the folder
// from which it is started. README.md says how to compile it.
#include <iostream>

#include "../../runtime/cpp/lstm_lower_train.hpp"

using lstm_lower::require, std::string, std::vector;

// A path in a folder or below it, of a name that stands in a file.
string inside(const string& folder, const string& name) {
  const std::filesystem::path path(name);
  const bool leaves = std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  require(!name.empty() && !path.has_root_path() && !leaves && name.find_first_of(string("\\\0", 2)) == string::npos,
          "a name that stays in its folder is required, got " + name);
  return folder + "/" + name;
}

// For each row the place of its largest number.
vector<ptrdiff_t> classes_of(const lstm_lower::Array& scores) {
  require(scores.dtype == "float32" && !scores.shape.empty() && scores.shape.back() > 0, "a prediction of scores in float32 is required");
  const size_t width = size_t(scores.shape.back()), count = scores.bytes.size() / sizeof(float);
  vector<ptrdiff_t> classes;
  for (const float* row = scores.data<float>(); classes.size() * width < count; row += width) classes.push_back(std::max_element(row, row + width) - row);
  return classes;
}

void train(const string& folder, const string& data, size_t steps, size_t size) {
  lstm_lower::Trainer trainer(folder);
  lstm_lower::Arrays samples;
  size_t count = 0;
  for (const auto& input : trainer.about().at("data")) {
    const string name = input.at("name");
    lstm_lower::Array& array = samples[name] = lstm_lower::read_npy(inside(data, name) + ".npy");
    require(!array.shape.empty() && array.shape[0] > 0, "input '" + name + "' requires samples along its first axis");
    require(count == 0 || count == size_t(array.shape[0]), "as many samples of every input are required");
    count = size_t(array.shape[0]);
  }
  require(count > 0, "a step that takes data is required");

  // Batches follow one another and begin again at the end.
  vector<float> losses;
  for (size_t number = 0; number < steps; number++) {
    vector<size_t> rows(std::min(size, count));
    for (size_t row = 0; row < rows.size(); row++) rows[row] = (number * rows.size() + row) % count;
    lstm_lower::Arrays batch;
    for (const auto& [name, array] : samples) batch[name] = array.take(rows);
    losses.push_back(trainer.step(batch));
    if ((number + 1) % ((steps + 9) / 10) == 0) std::cerr << "step " << number + 1 << " of " << steps << ", loss " << losses.back() << "\n";
  }

  for (const auto& [name, content] : trainer.trained()) require(bool(std::ofstream(name, std::ios::binary) << content), "a folder that can be written is required");
  const auto predictions = trainer.predict(samples);
  const string first = trainer.about().at("predict").at("predictions").at(0).at("name");
  std::cout << lstm_lower::Json{{"losses", losses}, {"classes", classes_of(predictions.at(first))}} << std::endl;
}

int main(int count, char** words) try {
  const auto number = [&](int place, size_t usual) { return count > place ? std::stoul(words[place]) : usual; };
  require(count >= 3 && number(3, 100) >= 1 && number(4, 32) >= 1,
          "a folder, a folder of .npy files, and numbers of steps and samples are required: ./train BUNDLE DATA [STEPS [BATCH_SIZE]]");
  train(words[1], words[2], number(3, 100), number(4, 32));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << lstm_lower::shown(error.what()) << "\n";
  return 1;
}
