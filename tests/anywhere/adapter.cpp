// ./adapter BUNDLE DATA IN OUT: puts the adapter IN into a bundle, does a step on DATA/x.npy and DATA/target.npy, writes the adapter OUT, and tells
// what is refused.
#include <iostream>

#include "../../runtime/cpp/lstm_lower_train.hpp"

int main(int, char** words) try {
  lstm_lower::Trainer trainer(words[1]);
  const std::string data = words[2], file = lstm_lower::read_file(words[3]);
  trainer.set_adapter(file);
  const auto before = trainer.state();
  trainer.set_adapter(trainer.adapter());
  for (const auto& [name, array] : trainer.state()) lstm_lower::require(array.bytes == before.at(name).bytes, "the same values are required of " + name);
  size_t accepted = 0;
  for (size_t bit = 0; bit < 8 * file.size(); bit += 97) {
    std::string flipped = file;
    flipped[bit / 8] ^= char(1 << bit % 8);
    try {
      trainer.set_adapter(flipped);
      accepted++;
    } catch (const std::exception&) {
    }
  }
  lstm_lower::require(accepted == 0, std::to_string(accepted) + " changed bits are accepted");
  trainer.step({{"x", lstm_lower::read_npy(data + "/x.npy")}, {"target", lstm_lower::read_npy(data + "/target.npy")}});
  std::ofstream(words[4], std::ios::binary) << trainer.adapter();
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << lstm_lower::shown(error.what()) << "\n";
  return 1;
}
