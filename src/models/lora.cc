#include "models/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "data/safetensors/folder_checksums.h"

namespace spillway::models {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

// Returns the module's name: the parameter's name without its last part.
std::string module_of(const std::string& parameter) {
  for (const std::string_view end : {kA, kB}) {
    if (parameter.ends_with(end)) return parameter.substr(0, parameter.size() - end.size());
  }
  return parameter.substr(0, parameter.rfind('.'));
}

bool is_target(const LoraConfig& lora, const std::string& module) {
  return lora.targets.empty() ||
         std::ranges::any_of(lora.targets, [&](const std::string& t) { return module == t || module.ends_with("." + t); });
}

double scale_of(const LoraConfig& lora) {
  const double rank = static_cast<double>(lora.rank);
  return lora.alpha / (lora.rank_stabilized ? std::sqrt(rank) : rank);
}

std::filesystem::path weights_file(const std::filesystem::path& folder) {
  for (const char* name : {kAdapterName, kOldAdapterName}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  throw Error(ErrorCode::data, fmt::format("[adapter] {}: expected the adapter's weights in {} or {}, got neither", folder.string(),
                                           kAdapterName, kOldAdapterName));
}

// Returns why a tensor of the adapter's file is refused. If the vocabulary was resized, PEFT saves the whole embedding and head beside the
// adapters.
const char* why_unknown(const std::string& tensor) {
  const bool whole = tensor.ends_with(".weight") && is_embedding_or_head(tensor.substr(0, tensor.rfind('.')));
  return whole ? "is a whole embedding or head, which is not supported together with adapters (merge both with PEFT's merge_and_unload() "
                 "and save_pretrained(), then use the result as --model)"
               : "belongs to no layer of this model that adapter_config.json adapts";
}

std::vector<double> all_of(const WeightSource& source, const nn::Parameter& parameter) {
  std::vector<double> values(static_cast<size_t>(parameter.elems()));
  source.read(parameter, 0, values);
  return values;
}

}  // namespace

nn::Lora lora_of(const ModelConfig& config, const std::string& module) {
  if (!config.lora || !is_target(*config.lora, module)) return {};
  return {config.lora->rank, scale_of(*config.lora), config.lora->dropout};
}

bool is_adapter(const nn::Parameter& p) { return p.name.ends_with(kA) || p.name.ends_with(kB); }

bool has_adapters(const nn::Sequential& model) {
  return std::ranges::any_of(model.parameters, [](const auto& p) { return is_adapter(*p); });
}

std::string peft_name(const nn::Parameter& p) { return std::string(kPeftPrefix) + p.name; }

std::vector<std::string> adapted_modules(const nn::Sequential& model) {
  std::vector<std::string> modules;
  for (const auto& p : model.parameters) {
    if (p->name.ends_with(kA)) modules.push_back(module_of(p->name));
  }
  return modules;
}

bool is_embedding_or_head(const std::string& module) {
  constexpr std::string_view kNames[] = {"lm_head", "embed_tokens", "wte", "wpe"};
  return std::ranges::find(kNames, std::string_view(module).substr(module.rfind('.') + 1)) != std::end(kNames);
}

std::string adapter_note(const std::filesystem::path& folder) { return data::WeightFolder(weights_file(folder)).wrappers_note(); }

AdapterFolder::AdapterFolder(const nn::Sequential& model, const std::filesystem::path& folder) : file_(weights_file(folder)) {
  std::vector<std::string> wrong;
  size_t wanted = 0;
  for (const auto& p : model.parameters) {
    if (!is_adapter(*p)) continue;
    ++wanted;
    const data::TensorInfo* tensor = file_.find(peft_name(*p));
    if (!tensor) {
      wrong.push_back(peft_name(*p) + " is missing");
    } else if (!tensor->foreign.empty() || !is_floating(tensor->dtype) || !(tensor->shape == p->shape)) {
      wrong.push_back(fmt::format("{}: expected floating-point numbers of shape {}, got {} {}", tensor->name, to_string(p->shape),
                                  tensor->foreign.empty() ? to_string(tensor->dtype) : tensor->foreign, to_string(tensor->shape)));
    }
  }
  std::set<std::string> known;
  for (const auto& p : model.parameters) {
    if (is_adapter(*p)) known.insert(peft_name(*p));
  }
  for (const std::string& name : file_.names()) {
    if (!known.contains(name)) wrong.push_back(fmt::format("{} {}", name, why_unknown(name)));
  }
  if (wrong.empty() && wanted > 0) return;
  const size_t shown = std::min<size_t>(wrong.size(), 5);
  throw Error(ErrorCode::data, fmt::format("[adapter] {}: expected an adapter of this model, got the adapter of another model{}{}: check "
                                           "that it was trained with this base model",
                                           folder.string(), wrong.empty() ? "" : ": ",
                                           fmt::join(wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(shown), "; ")));
}

void AdapterFolder::read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const {
  require(file_.find(peft_name(parameter)) != nullptr, "[adapter] expected a parameter of this model, got one of another model");
  file_.read(peft_name(parameter), begin, out);
}

void AdapterFolder::read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const {
  require(file_.find(peft_name(parameter)) != nullptr, "[adapter] expected a parameter of this model, got one of another model");
  file_.read_as(peft_name(parameter), begin, dtype, out);
}

MergedWeights::MergedWeights(const ModelConfig& config, const nn::Sequential& adapted, std::unique_ptr<WeightSource> source)
    : source_(std::move(source)), inputs_first_(config.family == Family::gpt2) {
  for (const auto& p : adapted.parameters) {
    if (!is_adapter(*p)) continue;
    Adapter& adapter = adapters_[module_of(p->name) + ".weight"];
    (p->name.ends_with(kA) ? adapter.a : adapter.b) = p.get();
    adapter.scale = scale_of(config.lora.value());
  }
}

std::shared_ptr<const MergedWeights::Matrices> MergedWeights::matrices(const Adapter& adapter) const {
  const std::lock_guard lock(mutex_);
  if (!last_ || last_->of != adapter.a)
    last_ = std::make_shared<const Matrices>(Matrices{adapter.a, all_of(*source_, *adapter.a), all_of(*source_, *adapter.b)});
  return last_;
}

void MergedWeights::read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const {
  source_->read(parameter, begin, out);
  const auto found = adapters_.find(parameter.name);
  if (found == adapters_.end()) return;
  const Adapter& adapter = found->second;
  const auto both = matrices(adapter);
  const i64 rank = adapter.a->shape[0], inputs = adapter.a->shape[1], columns = parameter.shape[1];
  for (size_t n = 0; n < out.size(); ++n) {
    const i64 at = begin + static_cast<i64>(n), row = at / columns, column = at % columns;
    const i64 o = inputs_first_ ? column : row, i = inputs_first_ ? row : column;
    double sum = 0;
    for (i64 r = 0; r < rank; ++r) sum += both->b[static_cast<size_t>(o * rank + r)] * both->a[static_cast<size_t>(r * inputs + i)];
    out[n] += adapter.scale * sum;
  }
}

void MergedWeights::read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const {
  if (!adapters_.contains(parameter.name)) return source_->read_as(parameter, begin, dtype, out);
  WeightSource::read_as(parameter, begin, dtype, out);
}

}  // namespace spillway::models
