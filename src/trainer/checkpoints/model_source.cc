#include "trainer/checkpoints/model_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/edit_distance.h"
#include "base/error.h"
#include "data/safetensors/folder_checksums.h"
#include "data/weights/weight_folder.h"
#include "models/folder_model.h"
#include "models/model.h"
#include "models/presets.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/node/host.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> environment_path(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read before any thread starts
  return value && *value ? std::optional<fs::path>(value) : std::nullopt;
}

fs::path hugging_face_cache() {
  if (auto p = environment_path("HF_HUB_CACHE")) return *p;
  if (auto p = environment_path("HF_HOME")) return *p / "hub";
  if (auto p = environment_path("XDG_CACHE_HOME")) return *p / "huggingface" / "hub";
  return environment_path("HOME").value_or(".") / ".cache" / "huggingface" / "hub";
}

// Returns the folder models--org--name/snapshots/<commit> in the Hugging Face cache. The documentation of huggingface_hub describes
// the cache's layout. The file refs/<revision> names the commit. If there is no such file, the revision is itself the commit.
std::optional<fs::path> cached_snapshot(const std::string& model, const std::string& revision = "main") {
  const size_t slash = model.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == model.size() || model.find('/', slash + 1) != std::string::npos) return {};
  const fs::path folder = hugging_face_cache() / ("models--" + model.substr(0, slash) + "--" + model.substr(slash + 1));
  if (fs::path(revision).is_absolute() || revision.find("..") != std::string::npos) return {};
  std::istringstream ref(read_whole(folder / "refs" / revision).value_or(""));
  std::string commit;
  if (!(ref >> commit)) commit = revision;
  if (commit.find('/') == std::string::npos && fs::exists(folder / "snapshots" / commit / "config.json"))
    return folder / "snapshots" / commit;
  if (revision != "main") return {};
  std::vector<fs::path> snapshots;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", ignored)) {
    if (fs::exists(entry.path() / "config.json")) snapshots.push_back(entry.path());
  }
  if (snapshots.size() < 2) return snapshots.empty() ? std::nullopt : std::optional(snapshots.front());
  throw Error(ErrorCode::usage,
              fmt::format("[model] {} holds {} snapshots of {} and refs/main names none of them: give one of their folders",
                          (folder / "snapshots").string(), snapshots.size(), model));
}

// Refuses a checkpoint without a manifest. Every read of a checkpoint is verified by the manifest's checksums, so a missing manifest means
// damage.
void check_manifest(const fs::path& folder) {
  if (!fs::exists(folder / kStateName) || fs::exists(folder / data::kManifestName)) return;
  throw data::Damaged(
      folder, fmt::format("{} is a checkpoint without {}, which holds the checksums of its files", folder.string(), data::kManifestName));
}

// Refuses a checkpoint of a model that a program built itself, because only that program can build the model's blocks.
void refuse_own_model(const fs::path& folder) {
  if (!fs::exists(folder / kStateName)) return;
  const std::string name = manifest_text(folder, kOwnModel);
  if (name.empty()) return;
  throw Error(ErrorCode::usage,
              fmt::format("[model] expected a model that this program knows, got {}, a checkpoint of `{}`, whose blocks the "
                          "program that trained it built: use that program; the weights are in {}",
                          folder.string(), name, (folder / kWeightsName).string()));
}

ModelSource from_folder(const fs::path& folder, std::string name) {
  check_manifest(folder);
  refuse_own_model(folder);
  if (is_adapter_folder(folder)) return find_adapted(folder, std::move(name));
  models::FolderModel model = models::read_folder_model(folder);
  ModelSource source{std::move(name), std::move(model.config), folder, false};
  source.notes = std::move(model.notes);
  source.made_here = fs::exists(folder / kStateName);
  source.reference = fs::weakly_canonical(fs::absolute(folder)).string();
  source.has_weights = data::has_weights(folder);
  if (!model.whole.empty()) source.whole = source.reference;
  if (source.made_here && !manifest_text(folder, kWhole).empty()) source.whole = manifest_text(folder, kWhole);
  return source;
}

// Returns the presets that are probably meant and how to get the model that `model` names on the Hugging Face Hub, by its name or its URL;
// or how to read the file that it is. Returns an empty text if it looks like a path, as names in an existing folder and in runs/ do.
std::string how_to_get(const std::string& model) {
  constexpr std::string_view kHub = "huggingface.co/";
  std::string name = model;
  if (const size_t hub = model.find(kHub); hub != std::string::npos) name.erase(0, hub + kHub.size());
  const auto slashes = std::ranges::count(name, '/');
  if (model.find("://") != std::string::npos && name == model) return ": nothing is downloaded; give the folder of a downloaded model";
  if (model.starts_with('.') || model.starts_with('/') || model.starts_with('~') || model.starts_with("runs/") || slashes > 1) return "";
  if (fs::exists(model)) {
    const bool weights = fs::path(model).extension() == ".pth" || fs::path(model).extension() == ".bin";
    return std::string(": a model is a folder with config.json and model.safetensors") +
           (weights ? "; spillway import makes one from weights of llm.c or torchvision" : "");
  }
  if (slashes == 1 && name == model && fs::is_directory(fs::path(model).parent_path())) return "";
  if (slashes == 1) return fmt::format(": nothing is downloaded; after `hf download {0}` give --model {0}", name);
  const std::vector<std::string> near = models::nearest_presets(model);
  return (near.empty() ? ". " : fmt::format(": did you mean the preset {}, whose weights are new? ", either_of(near))) +
         "Nothing is downloaded; `hf download ORG/NAME` gets a model of the Hugging Face Hub";
}

[[noreturn]] void refuse_model(const std::string& model, const std::string& revision) {
  const bool may_be_preset = model.find('/') == std::string::npos && !fs::exists(model);
  throw Error(ErrorCode::usage, fmt::format("[model] expected a preset, a folder with config.json, or org/name in {}, got `{}`{}, {}{}{}",
                                            hugging_face_cache().string(), model, revision == "main" ? "" : " of revision " + revision,
                                            fs::exists(model) ? "which is a file" : "for which there is no folder", how_to_get(model),
                                            may_be_preset ? fmt::format(". Presets: {}", fmt::join(models::preset_names(), ", ")) : ""));
}

std::string last_component(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

nn::Sequential ModelSource::build(DType dtype) const { return own ? own(dtype) : models::build(config, dtype); }

ModelSource own_model(std::string name, std::function<nn::Sequential(DType)> build) {
  if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos || name == "." || name == "..")
    throw Error(ErrorCode::usage, fmt::format("[model] expected a name for the program's own model that can be part of a file name, got "
                                              "\"{}\"",
                                              name));
  if (models::is_preset(name))
    throw Error(ErrorCode::usage,
                fmt::format("[model] expected for the program's own model a name that no preset has, got the preset {}", name));
  ModelSource source;
  source.name = std::move(name);
  source.own = std::move(build);
  return source;
}

void take_precision(Precision precision, ModelSource& source) {
  if (precision != Precision::fp8) return;
  const auto refuse = [&](const std::string& expected, const std::string& got) {
    throw Error(ErrorCode::usage, fmt::format("[--precision] expected {} for fp8, got {}: give --precision bf16", expected, got));
  };
  if (source.own) refuse("a model that Spillway builds from a preset or a config.json", "`" + source.name + "`, which the program builds");
  if (source.config.reads_images()) refuse("a model of transformer blocks", source.name + ", which reads images");
  if (source.config.experts) refuse("a model without experts", source.name + ", whose experts multiply in bf16");
  using kernels::WeightFormat;
  if (source.config.base_weights == WeightFormat::int8 || source.config.base_weights == WeightFormat::nf4)
    refuse("base weights in bf16", "--base-weights in 8 or 4 bits, which would be rounded twice");
  source.config.fp8 = true;
}

ModelSource find_model(const std::string& model, const std::string& revision) {
  if (models::is_preset(model)) return {model, models::preset(model), {}, false};
  if (fs::is_directory(model)) return from_folder(model, last_component(model));
  if (const auto snapshot = cached_snapshot(model, revision)) {
    ModelSource source = from_folder(*snapshot, last_component(model));
    source.reference = model;
    return source;
  }
  refuse_model(model, revision);
}

ModelSource find_trained_model(const std::string& model, const std::string& which) {
  const fs::path path(model);
  if (fs::is_directory(path / "checkpoints")) {
    const fs::path checkpoint = find_checkpoint(model, which);
    return from_folder(checkpoint, last_component(model));
  }
  if (fs::exists(path / "metrics.jsonl")) {
    throw Error(
        ErrorCode::data,
        fmt::format("[model] {} is a run that has saved no checkpoint yet: wait for its first checkpoint, or resume the run", model));
  }
  if (models::is_preset(model) || fs::is_directory(path) || cached_snapshot(model)) return find_model(model);
  const char* got = fs::exists(path) ? "which is a file" : "which does not exist";
  throw Error(ErrorCode::usage,
              fmt::format("[model] expected a run folder (train --out; runs/<model>-<8 hex digits> by default), a checkpoint in one, a "
                          "folder with config.json and model.safetensors, or org/name in {}, got `{}`, {}{}",
                          hugging_face_cache().string(), model, got, how_to_get(model)));
}

}  // namespace spillway::trainer
