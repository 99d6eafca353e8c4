#include "trainer/checkpoints/deepspeed_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/weights/zero_files.h"
#include "models/lora.h"
#include "trainer/checkpoints/checkpoint_tensors.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;
using data::TensorInfo;
using data::ZeroCheckpoint;
using optim::StatePart;

// Converts DeepSpeed's loss scale to Spillway's. With a window of W steps, DeepSpeed doubles its scale first after W + 1 finite
// steps in a row, and from then on after every W. Spillway always doubles after W, so its count of finite steps is one less.
std::optional<optim::LossScale> loss_scale_of(const std::optional<ZeroCheckpoint::Scale>& scale) {
  if (!scale) return {};
  const optim::LossScale ours{scale->scale, std::max<i64>(scale->steps_since_overflow - 1, 0) % optim::kLossScaleInterval};
  return ours.is_valid() ? std::optional(ours) : std::nullopt;
}

// Returns the name of the adapter, such as "default" in "lora_A.default.weight". PEFT's tensors in memory have such names,
// but its save_pretrained omits the adapter's name. Returns an empty text if the tensors' names contain no adapter name.
constexpr std::string_view kAdapterPart = ".lora_A.", kWeight = ".weight";
std::string adapter_of(const ZeroCheckpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const size_t at = tensor.name.find(kAdapterPart);
    if (at == tensor.name.npos || !tensor.name.ends_with(kWeight)) continue;
    const size_t begin = at + kAdapterPart.size(), end = tensor.name.size() - kWeight.size();
    return begin < end ? tensor.name.substr(begin, end - begin) : "";
  }
  return "";
}

// State maps each parameter to its tensors in the DeepSpeed checkpoint. The constructor checks all tensors before any
// is read. For a model with adapters only the adapters are mapped, because the base weights come from their own folder.
class State {
 public:
  State(const fs::path& folder, const ModelSource& source, const nn::Sequential& model, const optim::StateFormat& format)
      : checkpoint_(folder),
        weights_(model, models::has_adapters(model) ? *source.folder : checkpoint_.folder()),
        adapter_(models::has_adapters(model) ? adapter_of(checkpoint_) : "") {
    std::set<std::string> kept;
    std::set<const TensorInfo*> taken;
    for (const auto& p : model.parameters) {
      const TensorInfo* weight = models::is_adapter(*p)        ? adapter_tensor(*p)
                                 : models::has_adapters(model) ? nullptr
                                                               : checkpoint_.find(weights_.stored_name(*p));
      if (weight == nullptr) continue;
      taken.insert(weight);
      by_id_.emplace(p->id, weight);
      for (const StateTensor& t : state_tensors(*p, format)) {
        if (t.part == StatePart::master || t.part == StatePart::average) continue;
        const std::string array = t.suffix.substr(1);
        kept.insert(array);
        if (!(t.shape == p->shape) || !checkpoint_.has_array(*weight, array)) refuse(fmt::format("{} of {}", array, p->name));
        arrays_.emplace(std::pair(p->id, t.part), array);
      }
    }
    const std::vector<std::string> theirs = checkpoint_.arrays();
    if (!std::ranges::includes(kept, theirs)) refuse(kept.empty() ? "nothing" : fmt::format("{}", fmt::join(kept, ", ")));
    if (models::has_adapters(model)) refuse_left_over(taken);
  }

  void read_weight(const nn::Parameter& p, i64 begin, std::span<double> out) const {
    models::is_adapter(p) ? checkpoint_.read_wide(*by_id_.at(p.id), begin, out) : weights_.read(p, begin, out);
  }
  void read(const nn::Parameter& p, StatePart part, i64 begin, std::span<double> out) const {
    if (const auto array = arrays_.find({p.id, part}); array != arrays_.end())
      return read_array(p, *by_id_.at(p.id), array->second, begin, out);
    if (!p.frozen) read_weight(p, begin, out);  // reads the master weights, and the initial value of the moving average
  }

 private:
  void read_array(const nn::Parameter& p, const TensorInfo& tensor, const std::string& array, i64 begin, std::span<double> out) const {
    const nn::StoredPart* part = models::is_adapter(p) ? nullptr : weights_.stored_part(p);
    if (part == nullptr) return checkpoint_.read_array(tensor, array, begin, out);
    const auto whole = [&](i64 at, std::span<std::byte> bytes) {
      checkpoint_.read_array(tensor, array, at, {reinterpret_cast<double*>(bytes.data()), bytes.size() / sizeof(double)});
    };
    parts_.read(*part, p.elems(), tensor.name + "/" + array, sizeof(double), whole, begin, std::as_writable_bytes(out));
  }
  const TensorInfo* adapter_tensor(const nn::Parameter& p) const {
    std::string name = models::peft_name(p);
    if (!adapter_.empty()) name.insert(name.size() - kWeight.size(), "." + adapter_);
    const auto found = std::ranges::find(checkpoint_.tensors(), name, [](const TensorInfo& t) { return data::bare_name(t.name); });
    const TensorInfo* tensor = found == checkpoint_.tensors().end() ? nullptr : &*found;
    if (tensor == nullptr || !(tensor->shape == p.shape)) {
      throw Error(
          ErrorCode::data,
          fmt::format("[resume] {}: expected the adapter's {} of shape {}, got {}: give the --lora, --lora-targets and "
                      "--model that DeepSpeed trained with",
                      checkpoint_.folder().string(), name, to_string(p.shape), tensor == nullptr ? "none" : to_string(tensor->shape)));
    }
    return tensor;
  }
  // Throws Error(data) if DeepSpeed also trained a weight that is not one of this model's adapters.
  void refuse_left_over(const std::set<const TensorInfo*>& taken) const {
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      const bool trained =
          std::ranges::any_of(checkpoint_.arrays(), [&](const auto& array) { return checkpoint_.has_array(tensor, array); });
      if (trained && !taken.contains(&tensor))
        throw Error(
            ErrorCode::data,
            fmt::format("[resume] {}: DeepSpeed also trained {}, which is not an adapter of this model: give the --lora-targets that "
                        "DeepSpeed trained with",
                        checkpoint_.folder().string(), tensor.name));
    }
  }

  [[noreturn]] void refuse(const std::string& kept) const {
    const std::vector<std::string> arrays = checkpoint_.arrays();
    throw Error(ErrorCode::usage,
                fmt::format("[resume] {}: this run's optimizer has the state {}, but DeepSpeed's optimizer saved {}: give the --optimizer "
                            "that DeepSpeed used, or "
                            "load only the weights with --model",
                            checkpoint_.folder().string(), kept, arrays.empty() ? "nothing" : fmt::format("{}", fmt::join(arrays, ", "))));
  }

  const ZeroCheckpoint checkpoint_;
  const models::FolderWeights weights_;
  const std::string adapter_;
  std::map<u32, const TensorInfo*> by_id_;
  std::map<std::pair<u32, StatePart>, std::string> arrays_;
  models::PartReader parts_;
};

}  // namespace

bool is_deepspeed_checkpoint(const fs::path& folder) { return data::is_zero_checkpoint(folder); }

Progress deepspeed_progress(const fs::path& checkpoint) {
  const ZeroCheckpoint::Standing standing = ZeroCheckpoint(checkpoint).standing();
  if (standing.steps == 0)
    throw Error(ErrorCode::data,
                fmt::format("[resume] {}: expected a checkpoint after at least one step, got one that DeepSpeed saved before step 1",
                            checkpoint.string()));
  return {.step = standing.steps,
          .updates = std::min(standing.updates, standing.steps),
          .cursor = standing.samples,
          .loss_scale = loss_scale_of(standing.loss_scale)};
}

void load_deepspeed(const fs::path& checkpoint, const ModelSource& source, const nn::Sequential& model, parallel::Rank& rank) {
  const State state(checkpoint, source, model, rank.plan().scheduling.format);
  rank.load([&](const nn::Parameter& p, i64 begin, std::span<double> out) { state.read_weight(p, begin, out); },
            [&](const nn::Parameter& p, StatePart part, i64 begin, std::span<double> out) { state.read(p, part, begin, out); });
}

std::string deepspeed_text(const fs::path& checkpoint) {
  const ZeroCheckpoint::Standing standing = ZeroCheckpoint(checkpoint).standing();
  const std::string how = standing.stage == 0
                              ? "a universal checkpoint"
                              : fmt::format("ZeRO-{} on {} rank{}", standing.stage, standing.ranks, standing.ranks == 1 ? "" : "s");
  return fmt::format("DeepSpeed{}, {}, {} rows in {} steps", standing.version.empty() ? "" : " " + standing.version, how, standing.samples,
                     standing.steps);
}

}  // namespace spillway::trainer
