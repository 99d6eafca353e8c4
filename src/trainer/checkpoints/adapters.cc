#include "trainer/checkpoints/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"
#include "data/safetensors/folder_checksums.h"
#include "models/lora.h"
#include "models/model.h"
#include "trainer/checkpoints/checkpoint.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> targets_of(const std::string& flag) {
  std::vector<std::string> names;
  if (flag == "all-linear") return names;
  std::istringstream words(flag);
  for (std::string name; std::getline(words, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  if (names.empty())
    throw Error(ErrorCode::usage, "[--lora-targets] expected names of modules separated by commas, or all-linear, got nothing");
  return names;
}

// Checks that each target of --lora-targets names at least one module, because a misspelled name would otherwise go unnoticed.
void check_targets(const ModelSource& source) {
  const models::LoraConfig& lora = *source.config.lora;
  const std::vector<std::string> modules = models::adapted_modules(models::build(source.config, DType::f32));
  for (const std::string& target : lora.targets) {
    const bool found = std::ranges::any_of(modules, [&](const std::string& m) { return m == target || m.ends_with("." + target); });
    if (found) continue;
    if (models::is_embedding_or_head(target))
      throw Error(ErrorCode::usage,
                  fmt::format("[--lora-targets] expected layers between the embedding and the head, got `{}`: adapters for "
                              "the embedding and the head are not supported",
                              target));
    models::ModelConfig all = source.config;
    all.lora->targets.clear();
    std::vector<std::string> names;
    for (const std::string& module : models::adapted_modules(models::build(all, DType::f32))) {
      const std::string last = module.substr(module.rfind('.') + 1);
      if (std::ranges::find(names, last) == names.end()) names.push_back(last);
    }
    throw Error(ErrorCode::usage, fmt::format("[--lora-targets] expected names of modules in {}, such as {}, got `{}`", source.name,
                                              fmt::join(names, ", "), target));
  }
}

// Returns whether all weights of the folder are bf16. Such base weights
// can be stored in bf16 without loss, in half the bytes of fp32.
bool is_all_bf16(const fs::path& folder) {
  const data::WeightFolder tensors(folder);
  return std::ranges::all_of(tensors.names(), [&](const std::string& name) {
    const data::TensorInfo& info = *tensors.find(name);
    return info.foreign.empty() && (info.dtype == DType::bf16 || !is_floating(info.dtype));
  });
}

kernels::WeightFormat format_named(const std::string& name, const fs::path& folder) {
  using kernels::WeightFormat;
  if (name.empty()) return WeightFormat::plain;
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8, WeightFormat::nf4}) {
    if (name == to_string(format)) return format;
  }
  throw Error(
      ErrorCode::data,
      fmt::format("[checkpoint] {}: expected `{}` in the manifest to be bf16, 8bit or nf4, got `{}`: a newer program may have written it",
                  folder.string(), kBaseWeights, name));
}

}  // namespace

void resolve_adapters(const TrainConfig& config, ModelSource& source) {
  const bool asked = config.lora_alpha || config.lora_targets != "all-linear" || config.lora_dropout != 0 || config.lora_rank_stabilized;
  if (!config.lora) {
    if (asked)
      throw Error(
          ErrorCode::usage,
          config.adapter
              ? "[--adapter] expected no --lora flags with --adapter: rank, alpha, targets and dropout come from the adapter's folder, so "
                "leave the "
                "--lora flags out"
              : "[--lora] expected --lora RANK with --lora-alpha, --lora-targets, --lora-dropout and --lora-rank-scaling, got none: "
                "give it, or leave these flags out");
    if (config.adapter) take_adapter(source, *config.adapter);
  } else {
    if (source.adapter)
      throw Error(ErrorCode::usage, fmt::format("[--lora] expected a base model as --model, got {}, which has adapters: to train these "
                                                "further, give them as --adapter and the base as --model",
                                                config.model));
    models::LoraConfig lora;
    lora.rank = *config.lora;
    lora.alpha = config.lora_alpha.value_or(2 * static_cast<double>(lora.rank));
    lora.dropout = config.lora_dropout;
    lora.rank_stabilized = config.lora_rank_stabilized;
    lora.targets = targets_of(config.lora_targets);
    source.config.lora = std::move(lora);
  }
  if (!source.config.lora) {
    if (config.base_weights)
      throw Error(ErrorCode::usage,
                  "[--base-weights] expected --lora or --adapter with it: only frozen base weights can be quantized, trained weights stay "
                  "in full precision; give --lora RANK (QLoRA), or leave --base-weights out");
    return;
  }
  if (source.config.reads_images()) throw Error(ErrorCode::usage, fmt::format("[--lora] expected a language model, got {}", source.name));
  if ((!source.has_weights && !config.for_any_node) || config.from_scratch) {
    const std::string flag = config.from_scratch && source.has_weights ? "--from-scratch" : "it";
    throw Error(ErrorCode::usage,
                "[--lora] expected a --model folder with trained weights, got new ones: adapters on a randomly initialized "
                "base learn nothing useful; leave " +
                    flag + " out");
  }
  check_targets(source);
  if (!config.base_weights && weight_dtype(*config.precision) == DType::f32 && source.has_weights && is_all_bf16(*source.folder))
    source.config.base_weights = kernels::WeightFormat::bf16;
}

void take_adapter(ModelSource& source, const fs::path& folder) {
  if (source.adapter)
    throw Error(ErrorCode::usage,
                fmt::format("[--adapter] expected a base model as --model, got {}, which has adapters already", source.name));
  source.config.lora = models::read_adapter_config(folder);
  if (std::string note = models::adapter_note(folder); !note.empty()) source.notes.push_back(std::move(note));
  source.adapter = folder;
}

void take_base_weights(std::optional<BaseWeights> asked, Precision precision, ModelSource& source) {
  if (!asked) return;
  using kernels::WeightFormat;
  const DType products = weight_dtype(precision);
  if (source.config.reads_images())
    throw Error(ErrorCode::usage, fmt::format("[--base-weights] expected a language model, got {}", source.name));
  const bool fits = *asked == BaseWeights::fp32 ? products == DType::f32 : *asked == BaseWeights::bf16 ? products != DType::f16 : true;
  if (!fits)
    throw Error(ErrorCode::usage, fmt::format("[--base-weights] expected a format that matrix products in {} can use directly, got {}: "
                                              "leave --base-weights out, or give 8bit or nf4",
                                              to_string(products), *asked == BaseWeights::fp32 ? "fp32" : "bf16"));
  const bool plain = *asked == BaseWeights::fp32 || (*asked == BaseWeights::bf16 && products == DType::bf16);
  source.config.base_weights = plain                         ? WeightFormat::plain
                               : *asked == BaseWeights::bf16 ? WeightFormat::bf16
                               : *asked == BaseWeights::int8 ? WeightFormat::int8
                                                             : WeightFormat::nf4;
}

std::string to_string(kernels::WeightFormat format) {
  switch (format) {
    case kernels::WeightFormat::bf16:
      return "bf16";
    case kernels::WeightFormat::int8:
      return "8bit";
    case kernels::WeightFormat::nf4:
      return "nf4";
    case kernels::WeightFormat::plain:
      break;
  }
  return "plain";
}

void check_adapters_base(const ModelSource& base, const fs::path& adapter) {
  const std::string wanted = manifest_text(adapter, kBaseFingerprint);
  if (wanted.empty()) return;
  const std::string now = base.has_weights ? fingerprint_of(*base.folder) : "none";
  if (now == wanted) return;
  throw Error(
      ErrorCode::data,
      fmt::format("[adapter] {}: expected the base model it was trained with ({}, fingerprint {}), got other weights there ({}): put that "
                  "base model back",
                  adapter.string(), base.reference, wanted, now));
}

bool is_adapter_folder(const fs::path& folder) {
  return fs::exists(folder / models::kAdapterConfigName) && !fs::exists(folder / "config.json");
}

ModelSource find_adapted(const fs::path& folder, std::string name) {
  const auto [reference, revision] = models::read_adapter_base(folder);
  if (fs::is_directory(reference) && is_adapter_folder(reference)) {
    throw Error(ErrorCode::data,
                fmt::format("[adapter] {}: expected a model with full weights as its base, got {}, which holds adapters itself: "
                            "merge those into their base first (export --merge)",
                            folder.string(), reference));
  }
  ModelSource base;
  try {
    base = find_model(reference, revision);
  } catch (const Error& e) {
    throw Error(ErrorCode::data, fmt::format("[adapter] {}: expected the base model that it was trained with, `{}`: {}", folder.string(),
                                             reference, e.what()));
  }
  check_adapters_base(base, folder);
  take_adapter(base, folder);
  base.config.base_weights = format_named(manifest_text(folder, kBaseWeights), folder);
  base.name = std::move(name);
  return base;
}

std::unique_ptr<models::WeightSource> weights_of(const ModelSource& source, const nn::Sequential& model) {
  auto base = std::make_unique<models::FolderWeights>(model, *source.folder);
  if (!source.adapter) return base;
  return std::make_unique<models::AdaptedWeights>(std::move(base), std::make_unique<models::AdapterFolder>(model, *source.adapter));
}

std::string fingerprint_of(const fs::path& folder) {
  constexpr i64 kValues = 256;
  const data::WeightFolder tensors(folder);
  std::string text;
  i64 elems = 0;
  for (const std::string& name : tensors.names()) {
    const data::TensorInfo& info = *tensors.find(name);
    text += fmt::format("{} {} {} {}\n", name, info.foreign, to_string(info.dtype), to_string(info.shape));
    const i64 all = info.shape.elems(), some = std::min(all, kValues);
    elems += all;
    if (!info.foreign.empty() || !is_floating(info.dtype)) continue;
    std::vector<double> values(static_cast<size_t>(some));
    for (const i64 begin : {i64{0}, all - some}) {
      tensors.read(name, begin, values);
      text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
    }
  }
  return fmt::format("{:08x}-{}", crc32c(std::as_bytes(std::span(text))), elems);
}

}  // namespace spillway::trainer
