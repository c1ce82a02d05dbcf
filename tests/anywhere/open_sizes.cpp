// ./open_sizes BUNDLE DATA ADAPTER MODEL: trains a bundle whose class count is open for five classes on DATA/x.npy and DATA/target.npy, prints losses,
// writes the adapter and the trained model.
#include <iostream>

#include "../../runtime/cpp/lstm_lower_train.hpp"

int main(int, char** words) try {
  const std::vector<std::map<std::string, int64_t>> wrong{{}, {{"classes", 0}}, {{"classes", 5}, {"more", 5}}};
  for (const auto& sizes : wrong) {
    bool refused = false;
    try {
      lstm_lower::Trainer(words[1], sizes);
    } catch (const std::exception&) {
      refused = true;
    }
    lstm_lower::require(refused, "wrong sizes are accepted");
  }
  lstm_lower::Trainer trainer(words[1], {{"classes", 5}});
  const std::string data = words[2];
  const lstm_lower::Arrays feeds{{"x", lstm_lower::read_npy(data + "/x.npy")}, {"target", lstm_lower::read_npy(data + "/target.npy")}};
  for (int step = 0; step < 5; step++) std::cout << trainer.step(feeds) << "\n";
  std::ofstream(words[3], std::ios::binary) << trainer.adapter();
  std::ofstream(words[4], std::ios::binary) << trainer.trained().at("predict.onnx");
  lstm_lower::require(trainer.predict({{"x", feeds.at("x")}}).at("y").shape == lstm_lower::Shape{6, 5}, "five classes are required");
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << lstm_lower::shown(error.what()) << "\n";
  return 1;
}
