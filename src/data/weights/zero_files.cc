#include "data/weights/zero_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLatest = "latest", *kLatestUniversal = "latest_universal", *kParameters = "zero";
constexpr const char* kUniversalCure =
    "convert the checkpoint with DeepSpeed's ds_to_universal (python -m deepspeed.checkpoint.ds_to_universal) and give the folder that it "
    "writes";

// The two ranks in a file name: the data-parallel and the model-parallel
// rank. In "zero_pp_rank_3_mp_rank_00_optim_states.pt" they are 3 and 0.
struct TwoRanks {
  size_t data = 0, model = 0;
};
std::optional<size_t> number(std::string_view digits) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() > 6) return {};
  return value;
}
std::optional<TwoRanks> two_ranks(std::string_view name, std::string_view end) {
  if (name.starts_with("bf16_")) name.remove_prefix(5);
  constexpr std::string_view kBefore = "zero_pp_rank_", kBetween = "_mp_rank_";
  if (!name.starts_with(kBefore) || !name.ends_with(end)) return {};
  name.remove_prefix(kBefore.size());
  name.remove_suffix(end.size());
  const size_t between = name.find(kBetween);
  if (between == name.npos) return {};
  const auto data = number(name.substr(0, between)), model = number(name.substr(between + kBetween.size()));
  return data && model ? std::optional(TwoRanks{*data, *model}) : std::nullopt;
}

bool is_model_states(const std::string& name) { return name.ends_with("model_states.pt"); }

bool has_model_states(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_model_states(entry.path().filename().string())) return true;
  }
  return false;
}

std::string first_word(const fs::path& path) {
  constexpr size_t kLongest = 4096;  // the longest folder name, in bytes, that is read from the file `latest`
  std::istringstream text(beginning_of(path, kLongest));
  std::string word;
  return text >> word ? word : "";
}

// Returns the file in which DeepSpeed records the name of the newest checkpoint folder, or an empty path if there is none.
fs::path latest(const fs::path& folder) {
  for (const char* name : {kLatest, kLatestUniversal}) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  }
  return {};
}

fs::path step_folder(const fs::path& folder) {
  if (has_model_states(folder)) return folder;
  const fs::path named_by = latest(folder);
  const std::string name = first_word(named_by);
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
    reject_zero(named_by, fmt::format("expected the plain name of a folder next to this file, got {}", in_quotes(name)));
  if (!has_model_states(folder / name))
    reject_zero(named_by,
                fmt::format("this file names {}, which has no *_model_states.pt: is the copy complete?", (folder / name).string()));
  return folder / name;
}

std::vector<fs::path> all_of(const fs::path& folder, const std::map<size_t, fs::path>& by_rank, const std::string& what) {
  std::vector<fs::path> files;
  for (const auto& [rank, path] : by_rank) {
    if (rank != files.size())
      reject_zero(folder, fmt::format("expected {} of ranks 0 to {}, but the file of rank {} is missing: is the copy complete?", what,
                                      by_rank.rbegin()->first, files.size()));
    files.push_back(path);
  }
  return files;
}

}  // namespace

void reject_zero(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[deepspeed] {}: {}", path.string(), why));
}

bool is_zero_checkpoint(const fs::path& folder) {
  if (has_model_states(folder)) return true;
  const std::string name = first_word(latest(folder));
  return name.starts_with("global_step") || (!name.empty() && name.find('/') == name.npos && has_model_states(folder / name));
}

ZeroFiles zero_files(const fs::path& folder) {
  ZeroFiles files{.folder = step_folder(folder)};
  std::map<size_t, fs::path> models, optimizers;
  fs::path whole_model;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(files.folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const fs::path path = files.folder / name;
    if (name.starts_with("layer_") && is_model_states(name))
      reject_zero(path, std::string("the file was saved by DeepSpeed's PipelineModule, layer by layer: ") + kUniversalCure);
    if (name.find("expert_") != name.npos || name.starts_with("expp_rank_"))
      reject_zero(path, "the file was saved by DeepSpeed's own mixture-of-experts layer, which no model of this program uses");
    const auto model = two_ranks(name, "_model_states.pt"), optimizer = two_ranks(name, "_optim_states.pt");
    if ((model && model->model != 0) || (optimizer && optimizer->model != 0) ||
        (name.starts_with("mp_rank_") && is_model_states(name) && name != "mp_rank_00_model_states.pt"))
      reject_zero(path, std::string("its tensors are split over tensor-parallel ranks: ") + kUniversalCure);
    if (model) models.emplace(model->data, path);
    if (optimizer) optimizers.emplace(optimizer->data, path);
    if (name == "mp_rank_00_model_states.pt") whole_model = path;
  }
  std::error_code ignored;
  if (fs::is_directory(files.folder / kParameters, ignored)) files.parameters = files.folder / kParameters;
  files.model_states = whole_model.empty() ? all_of(files.folder, models, "zero_pp_rank_<n>_mp_rank_00_model_states.pt")
                                           : std::vector<fs::path>{whole_model};
  files.optimizer_states = all_of(files.folder, optimizers, "zero_pp_rank_<n>_mp_rank_00_optim_states.pt");
  if (files.model_states.empty())
    reject_zero(files.folder, "expected mp_rank_00_model_states.pt or zero_pp_rank_0_mp_rank_00_model_states.pt, got neither");
  if (files.optimizer_states.empty() && files.parameters.empty()) {
    reject_zero(files.folder,
                "the folder has no zero_pp_rank_*_optim_states.pt: the checkpoint was saved without ZeRO (stage 0), or the copy is "
                "incomplete; train with zero_optimization.stage 1 and save again, or continue from the weights alone (save_pretrained)");
  }
  return files;
}

}  // namespace spillway::data
