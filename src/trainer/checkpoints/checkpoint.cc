#include "trainer/checkpoints/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "data/files/beside.h"
#include "data/safetensors/safetensors.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/checkpoints/best.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/deepspeed_state.h"
#include "trainer/checkpoints/mixture_json.h"
#include "trainer/node/host.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;
using optim::StatePart;

constexpr const char* kRemoved = ".removed";  // suffix of a checkpoint that is being removed, with which it no longer looks complete

// StateReader reads optimizer.safetensors. Its constructor checks all tensors before any is read.
class StateReader {
 public:
  StateReader(const fs::path& checkpoint, const nn::Sequential& model, const optim::StateFormat& format)
      : file_(checkpoint / kStateName, data::FolderChecksums::of(checkpoint).find(kStateName)), dtype_(state_dtype(format)) {
    for (const data::TensorInfo& t : file_.tensors()) stated_.insert(t.name.substr(0, t.name.rfind('.')));
    for (const auto& p : model.parameters) {
      const bool stated = stated_.contains(p->name);
      if (stated && p->frozen) change_.frozen.push_back(p->name);
      if (!stated && !file_.tensors().empty() && !state_tensors(*p, format).empty()) {
        change_.thawed.push_back(p->name);
        continue;
      }
      for (const StateTensor& t : state_tensors(*p, format)) {
        const data::TensorInfo* info = file_.find(p->name + t.suffix);
        if (!info && t.part == StatePart::average) continue;  // the run kept no moving average of the weights when the checkpoint was saved
        if (!info || !(info->shape == t.shape) || info->dtype != dtype_) {
          throw Error(ErrorCode::data, fmt::format("[checkpoint] {}: expected {} of shape {} in {}, which is missing or different",
                                                   file_.path().string(), p->name + t.suffix, to_string(t.shape), to_string(dtype_)));
        }
        tensors_[{p->id, t.part}] = info;
      }
    }
  }

  const FreezeChange& change() const { return change_; }
  bool has(const nn::Parameter& p, StatePart part) const { return tensors_.contains({p.id, part}); }
  void read(const nn::Parameter& p, StatePart part, i64 begin, std::span<double> out) const {
    const data::TensorInfo& info = *tensors_.at({p.id, part});
    if (dtype_ == DType::f64) return file_.read(info, begin * 8, std::as_writable_bytes(out));
    std::vector<float> narrow(out.size());
    file_.read(info, begin * 4, std::as_writable_bytes(std::span(narrow)));
    std::copy(narrow.begin(), narrow.end(), out.begin());
  }

 private:
  const data::SafetensorsReader file_;
  const DType dtype_;
  std::set<std::string> stated_;  // names of parameters that have any state in the file
  FreezeChange change_;
  std::map<std::pair<u32, StatePart>, const data::TensorInfo*> tensors_;
};

nlohmann::json read_manifest(const fs::path& checkpoint) {
  const bool checked = data::FolderChecksums::of(checkpoint).any();  // FolderChecksums::of() also verifies the manifest by its own checksum
  const nlohmann::json manifest = parse_json(read_whole(checkpoint / data::kManifestName).value_or(""));
  if (manifest.is_discarded() || !manifest.is_object() || !manifest.contains("format") || !manifest["format"].is_number_integer() ||
      manifest["format"] < 1) {
    throw data::Damaged(checkpoint, fmt::format("expected a manifest.json in {}, but it is missing or unreadable", checkpoint.string()));
  }
  if (manifest["format"].get<i64>() > kCheckpointFormat) {
    throw Error(ErrorCode::data, fmt::format("[checkpoint] {} has format {}, but this program reads formats up to {}: use a newer spillway",
                                             checkpoint.string(), manifest["format"].get<i64>(), kCheckpointFormat));
  }
  if (manifest["format"] > 1 && !checked) {
    throw data::Damaged(checkpoint,
                        fmt::format("{} is damaged: expected checksums in its manifest.json, which has none", checkpoint.string()));
  }
  return manifest;
}

// Returns the string that the manifest stores under `key`, or an empty one if there is none.
std::string text_of(const nlohmann::json& manifest, const char* key) {
  const auto found = manifest.find(key);
  return found != manifest.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns the loss scale stored in a checkpoint. Returns nothing if it is constant, missing or invalid.
std::optional<optim::LossScale> loss_scale_of(const nlohmann::json& json) {
  const auto scale = json.find("loss_scale"), steps = json.find("finite_steps");
  if (scale == json.end() || steps == json.end() || !scale->is_number() || !steps->is_number_integer()) return {};
  const optim::LossScale found{scale->get<double>(), steps->get<i64>()};
  return found.is_valid() ? std::optional(found) : std::nullopt;
}

i64 whole_number(const nlohmann::json& manifest, const char* key, const fs::path& checkpoint) {
  if (!manifest.contains(key) || !manifest[key].is_number_integer() || manifest[key].get<i64>() < 0) {
    throw Error(ErrorCode::data, fmt::format("[checkpoint] {}: expected `{}` to be a whole number of 0 or more",
                                             (checkpoint / "manifest.json").string(), key));
  }
  return manifest[key].get<i64>();
}

}  // namespace

std::string to_record(const Progress& p, const std::string& numbers_hash, const std::string& metrics_line) {
  nlohmann::json record = {{"step", p.step},
                           {"updates", p.updates},
                           {"cursor", p.cursor},
                           {"tokens", p.tokens},
                           {"schedule_steps", p.schedule_steps},
                           {"made_with", p.made_with},
                           {"data", p.data},
                           {"rules", p.rules},
                           {"numbers", numbers_hash},
                           {"metrics", metrics_line}};
  if (p.loss_scale) record["loss_scale"] = p.loss_scale->scale, record["finite_steps"] = p.loss_scale->finite_steps;
  if (p.standing != Standing()) record[kStanding] = to_json(p.standing);
  put_mixture(record, p.mixture);
  return record.dump();
}

std::optional<Record> parse_record(const std::string& text) try {
  const nlohmann::json json = parse_json(text);
  if (!json.is_object()) return {};
  Record record;
  for (const auto& [key, member] : {std::pair("step", &Progress::step),
                                    {"updates", &Progress::updates},
                                    {"cursor", &Progress::cursor},
                                    {"tokens", &Progress::tokens},
                                    {"schedule_steps", &Progress::schedule_steps}}) {
    if (key == std::string_view("schedule_steps") && !json.contains(key)) continue;  // older programs did not write schedule_steps
    if (!json.contains(key) || !json[key].is_number_integer() || json[key].get<i64>() < 0) return {};
    record.progress.*member = json[key].get<i64>();
  }
  record.progress.rules = json.contains("rules") && json["rules"].is_number_integer() ? json["rules"].get<i64>() : 1;
  record.progress.loss_scale = loss_scale_of(json);
  record.progress.made_with = text_of(json, "made_with");
  record.progress.data = text_of(json, "data");
  record.progress.standing = standing_of(json.value(kStanding, nlohmann::json()));
  record.progress.mixture = mixture_of(json);
  record.numbers_hash = text_of(json, "numbers");
  record.metrics_line = text_of(json, "metrics");
  return record;
} catch (const Error&) {
  return {};  // the stored data mixture is invalid, so the progress is not returned
}

std::vector<fs::path> checkpoints(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    const bool committed = name.starts_with("step-") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (committed && entry.is_directory(ignored)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

i64 newest_step(const fs::path& run) {
  const std::vector<fs::path> all = checkpoints(run);
  return all.empty() ? -1 : std::stoll(all.back().filename().string().substr(std::string("step-").size()));
}

fs::path find_checkpoint(const fs::path& run, const std::string& which) {
  const std::vector<fs::path> all = checkpoints(run);
  if (all.empty()) throw Error(ErrorCode::data, fmt::format("[checkpoint] {} holds no complete checkpoint yet", run.string()));
  if (which == "last") return all.back();
  if (which == "best") {
    const std::optional<Best> best = read_best(run);
    if (best) return checkpoint_path(run, best->step);
    throw Error(ErrorCode::data, fmt::format("[checkpoint] {} has no best checkpoint: only training from Python or C++ that asks "
                                             "for it (keep_best) records one",
                                             run.string()));
  }
  std::string names;
  for (const fs::path& c : all) {
    const std::string digits = c.filename().string().substr(std::string("step-").size());
    const std::string step = digits.substr(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    if (which == step) return c;
    names += " " + step;
  }
  throw Error(ErrorCode::data, fmt::format("[checkpoint] {} has no checkpoint `{}`; there are:{}", run.string(), which, names));
}

Progress read_progress(const fs::path& checkpoint) {
  if (is_deepspeed_checkpoint(checkpoint)) return deepspeed_progress(checkpoint);
  const nlohmann::json manifest = read_manifest(checkpoint);
  const auto number = [&](const char* key) { return whole_number(manifest, key, checkpoint); };
  const i64 schedule_steps = manifest.contains("schedule_steps") ? number("schedule_steps") : 0;
  return {number("step"),
          number("updates"),
          number("cursor"),
          number("tokens"),
          schedule_steps,
          loss_scale_of(manifest),
          text_of(manifest, "made_with"),
          text_of(manifest, "data"),
          thawed_of(manifest.value("thawed", nlohmann::json::array())),
          standing_of(manifest.value(kStanding, nlohmann::json())),
          manifest.contains("rules") ? number("rules") : 1,
          mixture_of(manifest)};
}

std::string manifest_text(const fs::path& folder, const char* key) {
  if (!fs::exists(folder / data::kManifestName)) return "";
  const auto manifest = parse_json(data::read_checked_text({}, folder / data::kManifestName));
  return manifest.is_object() && manifest.contains(key) && manifest[key].is_string() ? manifest[key].get<std::string>() : "";
}

bool has_checksums(const fs::path& checkpoint) { return data::FolderChecksums::of(checkpoint).any(); }

std::vector<std::string> damage_of_checkpoint(const fs::path& checkpoint) try {
  if (is_deepspeed_checkpoint(checkpoint)) return {};  // DeepSpeed's checkpoints have no checksums
  read_manifest(checkpoint);
  return data::damage_of(checkpoint);
} catch (const data::Damaged& e) {
  return {e.wrong()};
} catch (const Error& e) {
  if (e.code() != ErrorCode::io) throw;
  return {fmt::format("{} cannot be read: {}", checkpoint.string(), e.what())};
}

FreezeChange load_checkpoint(const fs::path& checkpoint, const ModelSource& source, const nn::Sequential& model, parallel::Rank& rank) {
  if (is_deepspeed_checkpoint(checkpoint)) return load_deepspeed(checkpoint, source, model, rank), FreezeChange();
  const nlohmann::json manifest = read_manifest(checkpoint);
  const optim::StateFormat& format = rank.plan().scheduling.format;
  const DType dtype = format.weight;
  if (text_of(manifest, "dtype") != to_string(dtype)) {
    throw Error(ErrorCode::usage, fmt::format("[checkpoint] {} was saved in {}, this run trains in {}: give the run's --precision",
                                              checkpoint.string(), text_of(manifest, "dtype"), to_string(dtype)));
  }
  ModelSource saved = source;
  source.config.lora ? check_adapters_base(source, checkpoint), saved.adapter = checkpoint : saved.folder = checkpoint;
  const auto weights = weights_of(saved, model);
  const StateReader state(checkpoint, model, format);
  const auto master = [&](const nn::Parameter& p, i64 begin, std::span<double> out) {
    state.has(p, StatePart::master) ? state.read(p, StatePart::master, begin, out) : weights->read(p, begin, out);
  };
  rank.load(master, [&](const nn::Parameter& p, StatePart part, i64 begin, std::span<double> out) {
    if (part == StatePart::average && !state.has(p, part)) return master(p, begin, out);
    if (state.has(p, part)) state.read(p, part, begin, out);
  });
  return state.change();
}

void prune_checkpoints(const fs::path& run, i64 keep, std::optional<i64> best, std::optional<i64> good) {
  const std::vector<fs::path> all = checkpoints(run);
  fs::path newest_good;
  for (const fs::path& checkpoint : all) {
    if (good && checkpoint <= checkpoint_path(run, *good)) newest_good = checkpoint;
  }
  std::error_code ignored;
  for (i64 i = 0; i + keep < static_cast<i64>(all.size()); ++i) {
    const fs::path& old = all[static_cast<size_t>(i)];
    if (old == newest_good || (best && old == checkpoint_path(run, *best))) continue;
    const fs::path doomed = old.string() + kRemoved;
    fs::rename(old, doomed, ignored);
    fs::remove_all(doomed, ignored);
  }
}

std::vector<fs::path> not_before(const fs::path& run, const std::optional<fs::path>& from, i64 step) {
  std::vector<fs::path> all = checkpoints(run);
  std::error_code none;
  if (from && !fs::equivalent(from->parent_path(), run / "checkpoints", none)) return all;
  std::erase_if(all, [&](const fs::path& checkpoint) { return checkpoint <= checkpoint_path(run, step); });
  return all;
}

fs::path set_checkpoint_aside(const fs::path& checkpoint, const std::string& why) {
  fs::path aside = checkpoint.string() + "." + why;
  for (int n = 2; fs::exists(aside); ++n) aside = fmt::format("{}.{}-{}", checkpoint.string(), why, n);
  std::error_code error;
  fs::rename(checkpoint, aside, error);
  if (error)
    throw Error(ErrorCode::io,
                fmt::format("[checkpoint] cannot rename {} to {}: {}", checkpoint.string(), aside.string(), error.message()));
  return aside;
}

void remove_rests(const fs::path& run) {
  data::Beside::remove_left(run / "checkpoints");
  std::error_code ignored;
  std::vector<fs::path> doomed;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(kRemoved)) doomed.push_back(entry.path());
  }
  for (const fs::path& folder : doomed) fs::remove_all(folder, ignored);
}

}  // namespace spillway::trainer
