// Reads rows in Alpaca's layout. The wording of the prompt is that of https://github.com/tatsu-lab/stanford_alpaca. A row's system text and
// history are put into the prompt as LLaMA-Factory's alpaca format does with its template "alpaca".
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/rows/layouts.h"

namespace spillway::data {
namespace {

std::string asked(const std::string& instruction, const std::string& input) {
  const std::string with = input.empty() ? "" : "### Input:\n" + input + "\n\n";
  return "### Instruction:\n" + instruction + "\n\n" + with + "### Response:\n";
}

std::string introduction(bool has_input) {
  return fmt::format("Below is an instruction that describes a task{}. Write a response that appropriately completes the request.",
                     has_input ? ", paired with an input that provides further context" : "");
}

// Returns the pairs of question and answer that precede the prompt.
std::vector<Exchange> history_of(const JsonLine& line) {
  std::vector<Exchange> history;
  const JsonLine::Json* pairs = line.given("history");
  if (!pairs) return history;
  if (!pairs->is_array()) line.reject({"history"}, "a list of pairs as `history`", pairs);
  for (size_t i = 0; i < pairs->size(); ++i) {
    const JsonLine::Json& pair = (*pairs)[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      line.reject_at({"history", i}, fmt::format("expected two texts, a question and its answer, as item {} of `history`, got {}", i + 1,
                                                 JsonLine::shown(pair)));
    history.push_back({asked(pair[0].get<std::string>(), ""), pair[1].get<std::string>()});
  }
  return history;
}

}  // namespace

void read_alpaca(const JsonLine& line, Row& row) {
  const std::string input = line.text_if_any("input"), system = line.text_if_any("system");
  row.prompt = asked(line.text("instruction"), input);
  row.completion = line.text("output");
  row.history = history_of(line);
  std::string& first = row.history.empty() ? row.prompt : row.history.front().prompt;
  first = (system.empty() ? introduction(!input.empty()) : system) + "\n\n" + first;
  for (size_t i = 1; i < row.history.size(); ++i) row.history[i].prompt = "\n\n" + row.history[i].prompt;
  if (!row.history.empty()) row.prompt = "\n\n" + row.prompt;
}

}  // namespace spillway::data
