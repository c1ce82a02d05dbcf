// ./padding BUNDLE DATA LENGTHS: sequences of different lengths, padded and in buckets, right and wrong, as JSON.
#include <iostream>

#include "../../runtime/cpp/lstm_lower_train.hpp"

using lstm_lower::Array, lstm_lower::Data, lstm_lower::FitOptions, lstm_lower::Json, lstm_lower::Trainer, std::string, std::vector;

Array rows(const Json& list) {
  vector<float> numbers;
  for (const Json& row : list) numbers.insert(numbers.end(), row.begin(), row.end());
  return Array::of<float>("float32", {int64_t(list.size()), int64_t(list.at(0).size())}, numbers);
}

int main(int, char** words) try {
  const string bundle = words[1];
  const Json given = Json::parse(words[2]), told = Json::parse(words[3]);
  vector<Array> x;
  for (const Json& list : given.at("x")) x.push_back(rows(list));
  const vector<int64_t> labels = given.at("target");
  const Array target = Array::of<int64_t>("int64", {int64_t(labels.size())}, labels);
  const Array lengths = Array::of<int32_t>("int32", {int64_t(labels.size())}, told.get<vector<int32_t>>());
  const Data data{{"x", x}, {"target", target}};
  FitOptions options;
  options.epochs = 2, options.batch_size = 4, options.seed = 3, options.validation = &data, options.pad = {{"x", 0.5}}, options.lengths = {{"n", "x"}};
  FitOptions bucketed = options, unpadded, nameless = options, short_of = options, labelled = options;
  bucketed.buckets = {4, 8}, short_of.buckets = {2, 4};
  nameless.lengths.clear();
  labelled.pad = {{"target", 0}};
  Json result;
  result["longest"] = Trainer(bundle).fit(data, options);
  result["buckets"] = Trainer(bundle).fit(data, bucketed);
  const Array logits = Trainer(bundle).predict({{"x", x}}, {7, options.pad, options.lengths}).at("logits");
  result["predicted"] = vector<float>(logits.data<float>(), logits.data<float>() + logits.bytes.size() / sizeof(float));

  vector<Array> each;
  for (const int64_t label : labels) each.push_back(Array::of<int64_t>("int64", {}, {label}));
  const Array two = Array::of<int64_t>("int64", {2}, {labels[0], labels[1]}), one = Array::of<int64_t>("int64", {1}, {labels[0]});
  const std::map<string, std::pair<Data, FitOptions>> faults{
      {"not padded", {{{"x", x}, {"n", lengths}, {"target", target}}, unpadded}},
      {"no lengths", {data, nameless}},
      {"too short a bucket", {data, short_of}},
      {"samples of two widths", {{{"x", vector<Array>{x[0], Array::of<float>("float32", {2, 4}, vector<float>(8))}}, {"target", two}}, options}},
      {"samples of another rank", {{{"x", vector<Array>{{"float32", {int64_t(x[0].bytes.size() / 4)}, x[0].bytes}}}, {"target", one}}, options}},
      {"labels in sequences", {{{"x", x}, {"target", each}}, labelled}},
  };
  for (const auto& [name, fault] : faults) try {
      Trainer(bundle).fit(fault.first, fault.second);
      result["told"][name] = nullptr;
    } catch (const std::exception& error) {
      result["told"][name] = error.what();
    }
  std::cout << result << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << lstm_lower::shown(error.what()) << "\n";
  return 1;
}
