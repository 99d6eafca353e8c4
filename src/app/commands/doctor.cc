#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/commands/findings.h"
#include "app/help/help.h"

namespace spillway::app {

std::vector<Finding> examine(const DoctorConfig& config, const Host& host) {
  const std::vector<Finding> peers = look_at_peers();  // must run before this process uses a GPU
  std::vector<Finding> all = look_at_host(host);
  all.push_back(look_at_io(config.io_engine));
  std::vector<ScratchPath> paths = config.nvme;
  if (const auto scratch = host.env("SLURM_TMPDIR"); paths.empty() && scratch) paths.push_back({*scratch, std::nullopt});
  if (paths.empty()) {
    const bool reclaim = config.reclaim;
    all.push_back({reclaim ? Level::yellow : Level::green, "scratch", "none given (--nvme PATH checks one)",
                   reclaim ? "--reclaim has no folder to clean up: give it with --nvme PATH" : ""});
  }
  for (const ScratchPath& path : paths) {
    for (Finding& found : look_at_scratch(path, config.login, config.reclaim)) all.push_back(std::move(found));
  }
  all.push_back(look_at_calibration(host));
  const bool hangs = peers.size() == 1 && peers[0].name == "GPU";  // true if a GPU did not answer, in which case it is not asked again
  if (!hangs) all.push_back(look_at_gpu(host));
  all.insert(all.end(), peers.begin(), peers.end());
  for (Finding& found : look_at_cluster(host)) all.push_back(std::move(found));
  return all;
}

namespace {

Colour colour_of(Level level) { return level == Level::green ? Colour::green : level == Level::yellow ? Colour::yellow : Colour::red; }

// `painted` colours a word. Texts are wrapped within their column of a table of `columns` columns; 0 leaves each finding in one line.
template <class Painted>
std::string text_of(const std::vector<Finding>& findings, const Painted& painted, size_t columns) {
  size_t width = 0;
  for (const Finding& found : findings) width = std::max(width, found.name.size());
  std::string all;
  for (const Finding& found : findings) {
    const std::string word = to_string(found.level), gap(7 - word.size(), ' ');
    const std::string cure = found.cure.empty() ? "" : ": " + found.cure;
    const size_t indent = 7 + width + 2;
    const std::string text = found.text + cure;
    all += fmt::format("{}{}{:<{}}  ", painted(word, colour_of(found.level)), gap, found.name, width);
    all += columns > indent ? wrapped(text, indent, columns).substr(indent) : text + "\n";
  }
  return all;
}

}  // namespace

nlohmann::ordered_json findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& found : findings) {
    all.push_back({{"level", to_string(found.level)}, {"name", found.name}, {"text", found.text}, {"cure", found.cure}});
  }
  return all;
}

std::string findings_text(const std::vector<Finding>& findings) {
  return text_of(
      findings, [](const std::string& word, Colour) { return word; }, 0);
}

int run_doctor(const DoctorConfig& config, Console& console, const Host& host) {
  const std::vector<Finding> findings = examine(config, host);
  console.result([&] { return findings_json(findings).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace); },
                 [&] {
                   const auto painted = [&](const std::string& word, Colour colour) { return console.painted(word, colour); };
                   return text_of(findings, painted, console.out_terminal() ? console.size().first : 0);
                 });
  for (const Finding& found : findings) {
    if (found.level == Level::red) return 3;
  }
  return 0;
}

}  // namespace spillway::app
