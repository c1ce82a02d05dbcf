// ./scores BUNDLE DATA: a run on DATA/x.npy and DATA/y.npy with validation, and an evaluation of what came of it, as JSON.
#include <iostream>

#include "../../runtime/cpp/lstm_lower_train.hpp"

int main(int, char** words) try {
  const std::string data = words[2];
  const lstm_lower::Data held{{"x", lstm_lower::read_npy(data + "/x.npy")}, {"y", lstm_lower::read_npy(data + "/y.npy")}};
  lstm_lower::Trainer trainer(words[1]);
  lstm_lower::FitOptions options;
  options.epochs = 2, options.batch_size = 8, options.shuffle = false, options.validation = &held;
  lstm_lower::Json told{{"epochs", trainer.fit(held, options)}};
  told["scores"] = trainer.evaluate(held, {7, {}, {}});
  std::cout << told << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << lstm_lower::shown(error.what()) << "\n";
  return 1;
}
