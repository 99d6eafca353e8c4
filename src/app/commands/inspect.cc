// Implements `spillway inspect`, which describes a folder or a file as JSON. The text is rendered from that JSON; of a run it leaves out the
// settings that have their defaults and the times of the last step's parts.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/commands/commands.h"
#include "app/commands/inspect_rows.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/units.h"
#include "data/documents/prepare.h"
#include "data/loader/loader.h"
#include "data/safetensors/folder_checksums.h"
#include "data/tokens/token_format.h"
#include "data/weights/weight_folder.h"
#include "models/folder_model.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/deepspeed_state.h"
#include "trainer/events/lines_backward.h"
#include "trainer/settings/option.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr i64 kShownTokens = 16, kPieceTokens = 16 * kKiB;

std::string read_text(const fs::path& path) {
  const auto text = read_whole(path);
  if (!text) throw Error(ErrorCode::data, "[inspect] " + path.string() + " cannot be read");
  return *text;
}

Json read_json(const fs::path& path) {
  const std::string text = read_text(path);
  JsonFault fault;
  Json json = parse_ordered_json(text, &fault);
  if (json.is_discarded()) throw Error(ErrorCode::data, "[inspect] " + path.string() + ": " + fault.in_words(text));
  return json;
}

Json tensor_row(const data::TensorInfo& tensor) {
  if (const size_t space = tensor.foreign.find(' '); space != std::string::npos) {
    return {{"name", tensor.name},
            {"dtype", tensor.foreign.substr(0, space)},
            {"shape", tensor.foreign.substr(space + 1)},
            {"bytes", tensor.bytes()}};
  }
  Json shape = Json::array();
  for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
  return {{"name", tensor.name}, {"dtype", to_string(tensor.dtype)}, {"shape", shape}, {"bytes", tensor.bytes()}};
}

Json describe_tensors(const char* kind, const fs::path& path, const std::vector<data::TensorInfo>& all,
                      const std::map<std::string, std::string>& metadata) {
  Json tensors = Json::array();
  i64 elems = 0, bytes = 0;
  for (const data::TensorInfo& tensor : all) {
    tensors.push_back(tensor_row(tensor));
    elems += tensor.shape.elems();
    bytes += tensor.bytes();
  }
  Json about = {{"kind", kind}, {"path", path.string()}, {"tensors", tensors.size()}, {"elements", elems}, {"data_bytes", bytes}};
  for (const auto& [key, value] : metadata) about["metadata"][key] = value;
  about["table"] = std::move(tensors);
  return about;
}

Json describe_weights(const fs::path& path) {
  if (data::is_torch_file(path)) return describe_tensors("PyTorch", path, data::TorchFile(path).tensors(), {});
  const data::SafetensorsReader reader(path);
  return describe_tensors("safetensors", path, reader.tensors(), reader.metadata());
}

Json describe_tokens(const fs::path& path) {
  const auto sources = data::open_token_sources({path.string()}, data::kAnyVocabulary);
  const data::TokenSource& source = *sources.front();
  i32 highest = -1;
  Json first = Json::array();
  std::vector<i32> ids;
  for (i64 begin = 0; begin < source.tokens(); begin += kPieceTokens) {
    ids.resize(static_cast<size_t>(std::min(kPieceTokens, source.tokens() - begin)));
    source.read(begin, ids);
    highest = std::max(highest, *std::ranges::max_element(ids));
    for (size_t i = 0; begin == 0 && i < ids.size() && i < kShownTokens; ++i) first.push_back(ids[i]);
  }
  const data::TokenLayout layout = data::token_layout(data::File::open(path));
  return {{"kind", "tokens"},
          {"path", path.string()},
          {"tokens", source.tokens()},
          {"bytes_per_token", layout.width_bytes},
          {"header_bytes", layout.begin_bytes},
          {"highest_id", highest},
          {"first_ids", first}};
}

// Returns the weight files of a folder as a table with one row for each.
Json weight_files(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors" || data::is_torch_file(entry.path())) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  Json files = Json::array();
  for (const fs::path& path : paths) {
    const Json one = describe_weights(path);
    files.push_back(
        {{"file", path.filename().string()}, {"tensors", one["tensors"]}, {"elements", one["elements"]}, {"bytes", one["data_bytes"]}});
  }
  return files;
}

Json describe_checkpoint(const fs::path& folder) {
  Json about = {{"kind", "checkpoint"}, {"path", folder.string()}};
  about["manifest"] = read_json(folder / "manifest.json");
  about["manifest"].erase("checksums");  // too many to show, one for each block of the files
  about["checksums"] = has_checksums(folder);
  about["table"] = weight_files(folder);
  return about;
}

Json describe_model(const fs::path& folder) {
  Json about = {{"kind", "model"}, {"path", folder.string()}};
  const models::FolderModel model = models::read_folder_model(folder);
  about["config"] = parse_ordered_json(models::to_json(model.config));
  if (!model.notes.empty()) about["notes"] = model.notes;
  about["table"] = weight_files(folder);
  return about;
}

// Describes a DeepSpeed checkpoint, with the optimizer's arrays in the last column.
Json describe_deepspeed(const fs::path& folder) {
  const data::ZeroCheckpoint checkpoint(folder);
  Json about = describe_tensors("DeepSpeed's checkpoint", folder, checkpoint.tensors(), {});
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    std::string kept;
    for (const std::string& array : checkpoint.arrays()) {
      if (checkpoint.has_array(checkpoint.tensors()[i], array)) kept += (kept.empty() ? "" : " ") + array;
    }
    about["table"][i]["optimizer"] = kept;
  }
  Json first = {{"kind", about["kind"]}, {"path", about["path"]}, {"saved_by", deepspeed_text(folder)}};
  first.update(about);
  return first;
}

// Returns the last complete line of a file. A line after it may be incomplete, since a live run may be writing it.
std::string last_line(const fs::path& path) {
  if (!fs::exists(path)) return "";
  const data::File file = data::File::open(path);
  LinesBackward lines(file);
  LinesBackward::Line line;
  while (lines.next(line)) {
    if (line.ends) return line.text;
  }
  return "";
}

Json checkpoint_rows(const fs::path& run) {
  Json rows = Json::array();
  for (const fs::path& path : checkpoints(run)) {
    Json row = {{"checkpoint", path.filename().string()}, {"step", "damaged"}, {"tokens", "damaged"}};
    try {
      const Progress progress = read_progress(path);
      row["step"] = progress.step, row["tokens"] = progress.tokens;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::bug) throw;
    }
    rows.push_back(row);
  }
  return rows;
}

// Describes a run, beginning with what readers look for first.
Json describe_run(const fs::path& folder) {
  Json about = {{"kind", "run"}, {"path", folder.string()}};
  const Json config = fs::exists(folder / "config.json") ? read_json(folder / "config.json") : Json::object();
  const Json last = parse_ordered_json(last_line(folder / "metrics.jsonl"));
  const auto say = [&](const Json& from, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      if (from.is_object() && from.contains(key)) about[key] = from[key];
    }
  };
  say(config, keys_with(Command::train, &Option::shown_by_inspect));
  say(last, {"step", "loss", "tokens_per_s"});
  about["table"] = checkpoint_rows(folder);
  if (last.is_object()) about["last_step"] = last;
  if (!config.empty()) about["config"] = config;
  return about;
}

Json describe(const fs::path& path) {
  if (!fs::exists(path))
    throw Error(ErrorCode::data, "[inspect] expected a file or a folder, got " + path.string() + ", which does not exist");
  if (!fs::is_directory(path)) {
    if (path.extension() == ".safetensors" || data::is_torch_file(path)) return describe_weights(path);
    if (path.extension() == ".bin") return describe_tokens(path);
    throw Error(ErrorCode::usage, "[inspect] expected a .safetensors, .bin, .jsonl or .txt file, or a folder, got " + path.string());
  }
  if (fs::exists(path / "manifest.json")) return describe_checkpoint(path);
  if (fs::exists(path / "checkpoints") || fs::exists(path / "metrics.jsonl")) return describe_run(path);
  if (is_deepspeed_checkpoint(path)) return describe_deepspeed(path);
  if (fs::exists(path / "config.json")) return describe_model(path);
  throw Error(ErrorCode::usage, "[inspect] expected a model, a run or a checkpoint in " + path.string() +
                                    ", got a folder without config.json, metrics.jsonl or manifest.json");
}

std::string cell(const std::string& key, const Json& value) {
  const bool bytes = (key == "bytes" || key.ends_with("_bytes")) && value.is_number_integer();
  if (bytes) return format_bytes(value.get<i64>());
  return in_one_line(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string render_table(const Json& table) {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& [key, value] : table.front().items()) rows[0].push_back(key);
  for (const Json& row : table) {
    rows.emplace_back();
    for (const auto& [key, value] : row.items()) rows.back().push_back(cell(key, value));
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// Renders a JSON object as indented text. `within` is the key under which the object is stored: under "tier_bytes", for example, all
// members are bytes.
std::string render(const Json& about, const std::string& indent = "", const std::string& within = "") {
  std::string text;
  for (const auto& [key, value] : about.items()) {
    if (key == "table") {
      if (!value.empty()) text += "\n" + render_table(value);
    } else if (value.is_object()) {
      text += indent + in_one_line(key) + ":\n" + render(value, indent + "  ", key);
    } else {
      text += indent + in_one_line(key) + ": " + cell(within.ends_with("_bytes") ? within : key, value) + "\n";
    }
  }
  return text;
}

// Shortens the description of a run for the terminal: it keeps the settings that differ from the defaults, and of the last step everything
// except the times of its parts.
void shorten_run(Json& about) {
  if (about.contains("last_step")) about["last_step"].erase("phase_ms");
  if (!about.contains("config")) return;
  const Json defaults = parse_ordered_json(to_json(TrainConfig()));
  Json chosen = Json::object();
  for (const auto& [key, value] : about["config"].items()) {
    if (!defaults.contains(key) || defaults[key] != value) chosen[key] = value;
  }
  about.erase("config");
  about["settings other than the defaults (--json has all)"] = std::move(chosen);
}

// Returns the checkpoints to verify. `path` is a checkpoint itself, or a run, all of whose checkpoints are returned.
std::vector<fs::path> to_verify(const fs::path& path) {
  if (fs::exists(path / data::kManifestName) || fs::exists(path / kStateName)) return {path};
  const std::vector<fs::path> all = checkpoints(path);
  if (all.empty()) throw Error(ErrorCode::usage, "[inspect] --verify expects a checkpoint or a run with checkpoints, got " + path.string());
  return all;
}

int verify(const fs::path& path, Console& console) {
  Json rows = Json::array();
  bool whole = true;
  for (const fs::path& checkpoint : to_verify(path)) {
    console.passing("reading " + checkpoint.string());
    const std::vector<std::string> damage = damage_of_checkpoint(checkpoint);
    whole = whole && damage.empty();
    rows.push_back({{"checkpoint", checkpoint.string()},
                    {"verdict", !damage.empty()             ? "damaged"
                                : has_checksums(checkpoint) ? "whole"
                                                            : "no checksums: made by an older program"},
                    {"damage", damage}});
  }
  console.end_progress();
  if (console.json()) {
    console.result(rows.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const Json& row : rows) {
      console.result(row["checkpoint"].get<std::string>() + ": " + row["verdict"].get<std::string>());
      for (const Json& place : row["damage"]) console.result("  " + place.get<std::string>());
    }
  }
  return whole ? 0 : static_cast<int>(ErrorCode::data);
}

}  // namespace

int run_inspect(const InspectConfig& config, Console& console) {
  if (config.verify) return verify(config.path, console);
  const bool rows = data::is_json_lines(config.path);
  const bool text = data::is_plain_text(config.path) && fs::is_regular_file(config.path);
  Json about = rows ? describe_rows(config, console) : text ? describe_text(config, console) : describe(config.path);
  if (rows && !console.json()) {
    console.stream(first_rows_text(about, console));
    about.erase("first_rows");
  }
  if (!console.json() && about["kind"] == "run") shorten_run(about);
  console.result(console.json() ? about.dump(2, ' ', false, Json::error_handler_t::replace) : render(about));
  return 0;
}

}  // namespace spillway::app
