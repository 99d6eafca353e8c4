#include "trainer/resume/run_contents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"
#include "data/files/file.h"
#include "models/lora.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/run/start.h"
#include "trainer/settings/given.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

// Returns the configuration keys that name files. If the files' names in two configurations differ, the files' contents are compared.
std::vector<std::string> keys_by_contents() { return keys_with(Command::train, &Option::compared_by_contents); }

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string checksum(std::string_view text) { return fmt::format("{}:{:08x}", text.size(), crc32c(std::as_bytes(std::span(text)))); }

// Returns the size of a file and a checksum of its first and last MiB. Reading all of a large file would take too long.
std::string ends_of(const fs::path& path) {
  constexpr i64 kEnd = kMiB;
  const data::File file = data::File::open(path);
  const i64 some = std::min(file.size_bytes(), kEnd);
  std::string text(static_cast<size_t>(2 * some), '\0');
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(text));
  file.read(0, bytes.first(static_cast<size_t>(some)));
  file.read(file.size_bytes() - some, bytes.last(static_cast<size_t>(some)));
  return fmt::format("{}:{:08x}", file.size_bytes(), crc32c(std::as_bytes(std::span(text))));
}

// Returns a checksum of a model folder, or of the parameters of a program's own model.
// The result is empty for a preset, because the preset's name identifies the model.
std::string model_text(const TrainConfig& config, const ModelSource& source) {
  if (source.own) {
    std::string shapes;
    for (const auto& p : source.build(weight_dtype(*config.precision)).parameters)
      shapes += fmt::format("{} {} {} {}\n", p->name, to_string(p->shape), static_cast<int>(p->init.kind), p->init.std);
    return checksum(shapes);
  }
  if (!source.folder) return "";
  const std::string shape = checksum(read_whole(*source.folder / "config.json").value_or(""));
  if (config.from_scratch) return shape;
  // no fingerprint is needed if the run continues from saved weights
  return source.has_weights ? shape + " " + fingerprint_of(*source.folder) : "";
}

std::string tokenizer_text(const TrainConfig& config, const ModelSource& source) {
  const auto place = tokenizer_place(config, source);
  if (!place) return "";
  return checksum(read_whole(fs::is_directory(*place) ? *place / "tokenizer.json" : *place).value_or(""));
}

std::string template_text(const TrainConfig& config, const ModelSource& source) {
  if (!config.chat_template) return "";
  const auto place = tokenizer_place(config, source);
  const auto folder = place && !fs::is_directory(*place) ? place->parent_path() : place;
  const auto found = chat_template_of(config.chat_template, folder ? folder : source.folder);
  return found ? checksum(found->source()) : "";
}

std::string adapter_text(const TrainConfig& config) {
  if (!config.adapter) return "";
  const fs::path folder(*config.adapter);
  return checksum(read_whole(folder / models::kAdapterConfigName).value_or("")) + " " + ends_of(folder / models::kAdapterName);
}

void add(RunContents& contents, const char* key, const std::function<std::string()>& text) try {
  if (std::string found = text(); !found.empty()) contents.of[key] = std::move(found);
} catch (const Error&) {  // the error is ignored: the run may not need the file, and if it does, reading it reports the error
}

void add_files(RunContents& contents, const TrainConfig& config, const ModelSource& source) {
  add(contents, "model", [&] { return model_text(config, source); });
  add(contents, "tokenizer", [&] { return tokenizer_text(config, source); });
  add(contents, "chat_template", [&] { return template_text(config, source); });
  add(contents, "adapter", [&] { return adapter_text(config); });
}

std::string config_text(const fs::path& run) { return read_whole(run / "config.json").value_or(""); }

// Returns the contents for a run that an older program began and did not record: those of the files that are now at the paths in the run's
// config.json.
RunContents contents_at_paths(const fs::path& run) {
  RunContents contents;
  try {
    TrainConfig config = run_config(config_text(run));
    ModelSource source = find_model(config.model);
    add_files(contents, config, source);
  } catch (const Error&) {  // the model's files no longer exist, so nothing is known about their contents
  }
  return contents;
}

bool allows(const TrainConfig& config, std::string_view key) {
  return std::ranges::find(config.allow_change, key) != config.allow_change.end();
}

// Returns whether --allow-change permits a change after which the same data files give other
// rows. The checksums of the data cover the rows, so they cannot be compared after such a change.
bool makes_other_rows(const fs::path& run, const TrainConfig& config, const RunContents& before, const RunContents& now) {
  TrainConfig strict = config;
  strict.allow_change.clear();
  const std::string text = config_text(run);
  const std::vector<std::string> changes = text.empty() ? std::vector<std::string>() : number_changes(text, strict);
  return std::ranges::any_of(keys_with(Command::train, &Option::makes_rows), [&](const std::string& key) {
    const bool respelled = std::ranges::any_of(changes, [&](const std::string& c) { return c.starts_with(key + ": "); });
    const bool differs = text.empty() || respelled || before.find(key) != now.find(key);
    return allows(config, key) && differs;
  });
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// Returns the paths under `key` whose contents changed. If the number of paths changed, all paths are returned.
std::string paths_of(const TrainConfig& config, const std::string& key, const std::string& before, const std::string& now) {
  if (key == "model") return config.model;
  if (key == "tokenizer") return config.tokenizer.value_or(config.model);
  if (key == "chat_template") return config.chat_template.value_or("");
  if (key == "adapter") return config.adapter.value_or("");
  const std::vector<std::string> paths = key == "data" ? weighted_paths(config.data).paths : config.validation_data;
  const std::vector<std::string> was = words_of(before), is = words_of(now);
  if (was.size() != paths.size() || is.size() != paths.size()) return fmt::format("{}", fmt::join(paths, ", "));
  std::vector<std::string> other;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (was[i] != is[i]) other.push_back(paths[i]);
  }
  return fmt::format("{}", fmt::join(other, ", "));
}

// Returns the keys whose contents are known both before and now, and differ.
std::vector<std::string> other_contents(const fs::path& run, const TrainConfig& config, const RunContents& before, const RunContents& now) {
  std::vector<std::string> keys;
  for (const std::string& key : keys_by_contents()) {
    const std::string was = before.find(key), is = now.find(key);
    if (was.empty() || is.empty() || was == is) continue;
    if (key == "data" && makes_other_rows(run, config, before, now)) continue;
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

std::string RunContents::find(const std::string& key) const {
  const auto found = of.find(key);
  return found == of.end() ? "" : found->second;
}

std::string to_json(const RunContents& contents) {
  const nlohmann::json json = {{"contents", contents.of}, {"thawed", to_json(contents.thawed)}};
  return json.dump(2) + "\n";
}

RunContents parse_contents(const std::string& text) {
  const nlohmann::json json = parse_json(text);
  return {json.at("contents").get<std::map<std::string, std::string>>(), thawed_of(json.at("thawed"))};
}

RunContents contents_now(const TrainConfig& config, const ModelSource& source, const RunData& data) {
  RunContents contents;
  add_files(contents, config, source);
  contents.of["data"] = data.training->fingerprint();
  if (data.validation_sources) contents.of["validation_data"] = data.held_out->fingerprint();
  return contents;
}

RunContents contents_of_run(const fs::path& run, const Progress& progress) {
  RunContents contents;
  const auto text = read_whole(run / kContentsName);
  if (!text) {
    contents = contents_at_paths(run);
    if (!progress.data.empty()) contents.of["data"] = progress.data;
    return contents;
  }
  try {
    return parse_contents(*text);
  } catch (const nlohmann::json::exception& e) {
    throw Error(
        ErrorCode::data,
        fmt::format(
            "[resume] expected checksums of the run's input files in {}, got {}: remove that file, and the inputs are compared with the "
            "newest checkpoint only",
            (run / kContentsName).string(), e.what()));
  }
}

std::vector<std::string> same_contents(const fs::path& run, const TrainConfig& config, const RunContents& before, const RunContents& now) {
  std::vector<std::string> same;
  for (const std::string& key : keys_by_contents()) {
    const std::string was = before.find(key);
    if (!was.empty() && was == now.find(key)) same.push_back(key);
  }
  const std::string text = config_text(run);
  if (text.empty()) return same;
  // The weights of a data mixture are part of the flag --data, but not of the files' contents.
  if (weighted_paths(run_config(text).data).weights != weighted_paths(config.data).weights) std::erase(same, "data");
  return same;
}

namespace {

void check_same_contents(const fs::path& run, const TrainConfig& config, const RunContents& before, const RunContents& now, i64 step) {
  for (const std::string& key : other_contents(run, config, before, now)) {
    if (allows(config, key)) continue;
    const std::string was = before.find(key), is = now.find(key);
    const std::string meaning = key == "data" ? ", in which the run's position has no meaning" : "";
    const std::string older =
        key == "data" ? ". If the files are the same, an older program made rows from their text differently: without the special "
                        "tokens that the tokenizer adds, with prompts and completions tokenized separately, and packed in another order"
                      : "";
    throw Error(
        ErrorCode::usage,
        fmt::format("[resume] expected in {} the same contents that the run was trained {} up to step {} ({}), got other contents in {} "
                    "({}){}: put the old files "
                    "back, or start a new run with another --out; --allow-change {} continues with the new contents{}",
                    flag_of(key), key == "data" ? "on" : "with", step, was, paths_of(config, key, was, is), is, meaning, key, older));
  }
}

std::vector<std::string> notes_of(const fs::path& run, const TrainConfig& config, const RunContents& before, const RunContents& now,
                                  i64 step) {
  std::vector<std::string> notes;
  TrainConfig strict = config;
  strict.allow_change.clear();
  const std::vector<std::string> same = same_contents(run, config, before, now);
  for (const std::string& change : number_changes(config_text(run), strict)) {
    const std::string key = change.substr(0, change.find(": "));
    if (std::ranges::find(same, key) != same.end()) notes.push_back("the same contents at another path: " + change);
  }
  for (const std::string& key : other_contents(run, config, before, now)) {
    notes.push_back(fmt::format("{} has other contents from step {} on, in {}: the run uses them now, as --allow-change {} permits",
                                flag_of(key), step + 1, paths_of(config, key, before.find(key), now.find(key)), key));
  }
  const std::string was = before.find("validation_data"), is = now.find("validation_data");
  if (!was.empty() && !is.empty() && was != is)
    notes.push_back(fmt::format(
        "--validation-data has other contents than before, in {}: the new validation losses cannot be compared with the earlier ones",
        paths_of(config, "validation_data", was, is)));
  return notes;
}

// Returns whether the run in the folder `run` has all settings of `config` that
// change numbers, and the same contents at every path that is spelled in another way.
bool is_same_run(const fs::path& run, const TrainConfig& config, const RunContents& now) try {
  const std::string text = config_text(run);
  if (text.empty() || !number_changes(text, config, keys_by_contents()).empty()) return false;
  const std::vector<fs::path> saved = checkpoints(run);
  const RunContents before = contents_of_run(run, saved.empty() ? Progress() : read_progress(saved.back()));
  return other_contents(run, config, before, now).empty() && number_changes(text, config, same_contents(run, config, before, now)).empty();
} catch (const Error&) {  // if the folder cannot be read, it is not known to hold this run
  return false;
}

}  // namespace

std::vector<std::string> check_same_run(const fs::path& run, const TrainConfig& config, const Progress& progress, RunContents& now) {
  if (run.empty()) return {};
  const RunContents before = contents_of_run(run, progress);
  const bool has_config = !config_text(run).empty();
  // Settings are compared first, because rows of another length, for example, have another checksum although the files are the same.
  // Paths may differ if the contents are the same, so they are compared last.
  if (has_config) check_same_numbers(config, run, keys_by_contents());
  check_same_contents(run, config, before, now, progress.step);
  if (!has_config) return {};
  check_same_numbers(config, run, same_contents(run, config, before, now));
  std::vector<std::string> notes = notes_of(run, config, before, now, progress.step);
  now.of.insert(before.of.begin(), before.of.end());
  return notes;
}

std::string find_out(const TrainConfig& config, const RunContents& now) {
  const fs::path own = default_out(config);
  if (fs::exists(own / "config.json")) return own.string();
  std::vector<fs::path> others;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(own.parent_path(), none)) {
    if (is_same_run(entry.path(), config, now)) others.push_back(entry.path());
  }
  std::ranges::sort(others);
  return others.empty() ? own.string() : others.front().string();
}

}  // namespace spillway::trainer
