#include "app/commands/rehearse_run.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "trainer/node/host.h"
#include "trainer/node/stop.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> with_train(const std::vector<std::string>& words) {
  std::vector<std::string> all{"train"};
  all.insert(all.end(), words.begin(), words.end());
  all.push_back("--json");
  return all;
}

std::vector<std::string> whole_lines(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::istringstream text(read_whole(file).value_or(""));
  for (std::string line; std::getline(text, line) && !text.eof();) lines.push_back(line);
  return lines;
}

Rows objects_of(const std::filesystem::path& file) {
  Rows rows;
  for (const std::string& line : whole_lines(file)) {
    if (Json row = parse_ordered_json(line); row.is_object()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Rows rows_of(const std::filesystem::path& run) { return objects_of(run / "metrics.jsonl"); }

RehearsedRun::RehearsedRun(const std::vector<std::string>& words, const std::filesystem::path& said)
    : said_(said), process_(with_train(words), said.string() + ".json", said.string() + ".txt") {}

bool RehearsedRun::runs_until(const std::function<bool()>& when) {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    if (stop_requested()) throw RehearsalInterrupted();
    const bool over = process_.is_over();
    if (when()) return !over;
    if (over) return false;
  }
}

int RehearsedRun::end() {
  runs_until([] { return false; });
  return process_.wait();
}

Json RehearsedRun::result() const {
  const Rows all = objects_of(said_.string() + ".json");
  return all.empty() ? Json::object() : all.back();
}

std::vector<std::string> RehearsedRun::lines() const { return whole_lines(said_.string() + ".txt"); }

std::string RehearsedRun::words() const {
  if (const Json error = result().value("error", Json::object()); error.contains("message")) return error.value("message", "");
  const std::vector<std::string> all = lines();
  auto from = std::find_if(all.rbegin(), all.rend(), [](const std::string& line) { return line.starts_with("warning: "); });
  if (from == all.rend()) from = std::find_if(all.rbegin(), all.rend(), [](const std::string& line) { return !line.empty(); });
  if (from == all.rend()) return "the run printed nothing";
  std::string text = *from;
  for (auto line = from.base(); line != all.end(); ++line) text += "\n" + *line;
  return text;
}

std::string RehearsedRun::last_line(const std::string& begin) const {
  std::string last;
  for (const std::string& line : lines()) {
    if (line.starts_with(begin)) last = line.substr(begin.size());
  }
  return last;
}

}  // namespace spillway::app
