// ./checks BUNDLE CHECKPOINT OUT: what the header does with a checkpoint of Python, a run on samples, and what it says of what is wrong, as JSON.
#include <iostream>

#include "../../runtime/cpp/lstm_lower_train.hpp"

using lstm_lower::Array, lstm_lower::Arrays, lstm_lower::Json, lstm_lower::Trainer, std::string, std::vector;

Arrays samples(size_t count) {
  vector<float> x(count * 6);
  vector<int64_t> target(count);
  for (size_t place = 0; place < x.size(); place++) x[place] = float(std::sin(double(place)));
  for (size_t row = 0; row < count; row++) target[row] = int64_t(row % 3);
  return {{"x", Array::of<float>("float32", {int64_t(count), 6}, x)}, {"target", Array::of<int64_t>("int64", {int64_t(count)}, target)}};
}

bool equal(const Arrays& one, const Arrays& other) {
  return one.size() == other.size() && std::all_of(one.begin(), one.end(), [&](const auto& entry) { return other.at(entry.first).bytes == entry.second.bytes; });
}

Arrays with(Arrays arrays, const string& name, const Array& array) {
  arrays[name] = array;
  return arrays;
}

Arrays without(Arrays arrays, const string& name) {
  arrays.erase(name);
  return arrays;
}

int main(int, char** words) try {
  Trainer trainer(words[1]);
  const Json notes = trainer.resume(words[2]);
  trainer.save(words[3], notes);
  Json result{{"steps", trainer.steps()}, {"rate", trainer.learning_rate}, {"worst", notes.at("worst").get<string>().substr(1)}};

  // A rest in the middle of ten steps.
  Trainer whole(words[1]), half(words[1]), rest(words[1]);
  for (int step = 0; step < 10; step++) whole.step(samples(4));
  for (int step = 0; step < 5; step++) half.step(samples(4));
  rest.take(half.checkpoint());
  for (int step = 5; step < 10; step++) rest.step(samples(4));
  result["halves"] = equal(whole.state(), rest.state());

  Trainer fitted(words[1]);
  lstm_lower::FitOptions options;
  const lstm_lower::Data held = samples(50);
  options.epochs = 3, options.batch_size = 8, options.seed = 7, options.validation = &held;
  result["epochs"] = fitted.fit(held, options);
  result["scores"] = fitted.evaluate(held, {7, {}, {}});
  result["orders"] = {lstm_lower::Permutation(7, 2).rows(1000), lstm_lower::Permutation(uint64_t(1) << 40, 0).rows(70)};

  // One bit of forty places.
  const string file = trainer.checkpoint();
  result["accepted"] = 0;
  for (size_t number = 0; number < 40; number++) {
    const size_t bit = (number * 2654435761u + 97) % (8 * file.size());
    string flipped = file;
    flipped[bit / 8] ^= char(1 << bit % 8);
    try {
      trainer.take(flipped);
      result["accepted"] = result["accepted"].get<int>() + 1;
    } catch (const std::exception&) {
    }
  }

  const Arrays right = samples(4), state = trainer.state();
  const Array& x = right.at("x");
  const auto labels = [&](const vector<int64_t>& each) { return with(right, "target", Array::of<int64_t>("int64", {int64_t(each.size())}, each)); };
  lstm_lower::FitOptions none, no_size, padded, lengths, falling, unpadded;
  none.epochs = 0, no_size.batch_size = 0, padded.pad = {{"y", 0}}, lengths.lengths = {{"target", "y"}};
  falling.pad = {{"x", 0}}, falling.buckets = {4, 4}, unpadded.buckets = {4};
  lstm_lower::FitOptions unlabelled, unscored;
  const lstm_lower::Data alone = without(right, "target"), nothing{{"x", Array{"float32", {0, 6}, ""}}, {"target", Array{"int64", {0}, ""}}};
  unlabelled.validation = &alone, unscored.validation = &nothing;
  const Array& w = state.at("w");
  const std::map<string, std::function<void()>> faults{
      {"no target", [&] { trainer.step(without(right, "target")); }},
      {"no feeds", [&] { trainer.step({}); }},
      {"unknown feed", [&] { trainer.step(with(right, "y", x)); }},
      {"float64 for float32", [&] { trainer.step(with(right, "x", Array::of<double>("float64", {4, 6}, vector<double>(24)))); }},
      {"float32 for int64", [&] { trainer.step(with(right, "target", Array::of<float>("float32", {4}, vector<float>(4)))); }},
      {"int32 for int64", [&] { trainer.step(with(right, "target", Array::of<int32_t>("int32", {4}, vector<int32_t>(4)))); }},
      {"rank", [&] { trainer.step(with(right, "x", {"float32", {24}, x.bytes})); }},
      {"size", [&] { trainer.step(with(labels({0, 1, 2, 1, 0, 1}), "x", {"float32", {6, 4}, x.bytes})); }},
      {"fewer labels", [&] { trainer.step(labels({0, 1, 2})); }},
      {"one label", [&] { trainer.step(labels({1})); }},
      {"no epochs", [&] { trainer.fit(right, none); }},
      {"no batch size", [&] { trainer.fit(right, no_size); }},
      {"data of different lengths", [&] { trainer.fit(labels({0, 1, 2})); }},
      {"no data", [&] { trainer.fit(nothing); }},
      {"data without target", [&] { trainer.fit(alone); }},
      {"data of another rank", [&] { trainer.fit(with(right, "x", {"float32", {24}, x.bytes})); }},
      {"data of another size", [&] { trainer.fit(with(right, "x", {"float32", {4, 3, 2}, x.bytes})); }},
      {"data of another dtype", [&] { trainer.fit(with(right, "target", Array::of<float>("float32", {4}, vector<float>(4)))); }},
      {"samples of another rank", [&] { trainer.fit({{"x", vector<Array>{{"float32", {24}, x.bytes}}}, {"target", right.at("target")}}); }},
      {"padding of no input", [&] { trainer.fit(right, padded); }},
      {"lengths of no input", [&] { trainer.fit(right, lengths); }},
      {"buckets that do not ascend", [&] { trainer.fit(right, falling); }},
      {"buckets without padding", [&] { trainer.fit(right, unpadded); }},
      {"validation without target", [&] { trainer.fit(right, unlabelled); }},
      {"validation of nothing", [&] { trainer.fit(right, unscored); }},
      {"evaluation without target", [&] { trainer.evaluate(alone); }},
      {"prediction of another size", [&] { trainer.predict({{"x", Array{"float32", {8, 3}, x.bytes}}}); }},
      {"unknown output", [&] { trainer.step(right, {"accuracy"}); }},
      {"state lacks a value", [&] { trainer.set_state(without(state, "w")); }},
      {"state has one more", [&] { trainer.set_state(with(state, "more", x)); }},
      {"state of another dtype", [&] { trainer.set_state(with(state, "w", {"float64", w.shape, w.bytes + w.bytes})); }},
      {"state of another shape", [&] { trainer.set_state(with(state, "w", {"float32", {8, 6}, w.bytes})); }},
      {"label beyond", [&] { trainer.step(labels({0, 1, 2, 3})); }},
      {"label below", [&] { trainer.step(labels({0, 1, 2, -1})); }},
      {"loss that is no number", [&] { trainer.step(with(right, "x", Array::of<float>("float32", {4, 6}, vector<float>(24, NAN)))); }},
      {"no checkpoint", [&] { trainer.resume("none.safetensors"); }},
      {"another file", [&] { trainer.resume(string(words[1]) + "/train.onnx"); }},
      {"adapter for a checkpoint", [&] { trainer.take(trainer.adapter()); }},
      {"cut checkpoint", [&] { trainer.take(file.substr(0, file.size() - 8)); }},
      {"numbers of a shape", [&] { trainer.step(with(right, "x", {"float32", {4, 6}, x.bytes.substr(4)})); }},
  };
  for (const auto& [name, fault] : faults) try {
      fault();
      result["told"][name] = nullptr;
    } catch (const std::exception& error) {
      result["told"][name] = error.what();
    }
  result["same"] = equal(state, trainer.state());
  std::cout << result << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << lstm_lower::shown(error.what()) << "\n";
  return 1;
}
