#include "trainer/train/train_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "tensor/create.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/settings/run_settings.h"

namespace spillway::trainer {

namespace fs = std::filesystem;

void check_disk(const TrainConfig& config, const Session& session) {
  fs::path at = fs::absolute(config.out);
  while (!fs::exists(at)) at = at.parent_path();
  const i64 each = checkpoint_bytes(session.model(), session.format());
  const i64 more = std::max<i64>(1, config.run->keep + 1 - static_cast<i64>(checkpoints(config.out).size()));
  const i64 tier_bytes = session.scratch_bytes_beside(at.string());
  const i64 free_bytes = static_cast<i64>(fs::space(at).available) - tier_bytes;
  const i64 wanted = config.run->no_final_checkpoint && config.run->checkpoint_every.unit == Cadence::Unit::seconds ? each : more * each;
  if (free_bytes >= wanted) return;
  throw Error(
      ErrorCode::refused,
      fmt::format("[checkpoint] expected room for {} checkpoints of {} in {}, which has {} free{}: free some space, give another --out, "
                  "or a smaller --keep",
                  more, format_bytes(each), at.string(), format_bytes(std::max<i64>(0, free_bytes)),
                  tier_bytes > 0 ? fmt::format(" beside the {} of this run's nvme tier", format_bytes(tier_bytes)) : ""));
}

void check_weights(const TrainConfig& config, const ModelSource& source) {
  if (!source.folder || source.has_weights || config.from_scratch || config.resume.kind == Resume::Kind::path) return;
  throw Error(ErrorCode::usage, fmt::format("[model] {} has a config.json but no weights (model.safetensors, pytorch_model.bin, or a "
                                            "checkpoint of DeepSpeed or FSDP): give --from-scratch to start from new weights",
                                            config.model));
}

namespace {

bool pads(const TrainConfig& config, const RunData& data) {
  const bool training = !config.drop_last && data.training->windows() % data.training->windows_per_step() != 0;
  const i64 each = config.micro_batch_rows() * config.data_ranks();
  return training || (data.held_out && data.held_out->validation_windows() % each != 0);
}

}  // namespace

void check_padding(Session& session, const TrainConfig& config, const RunData& data) {
  if (!session.source().own || !pads(config, data)) return;
  const StreamScope scope(session.rank().input_stream());
  MicroBatch batch = nn::empty_batch(session.model(), config.micro_batch_rows(), *config.sequence_length);
  for (Tensor* t : batch.tensors()) {
    if (t->defined()) *t = is_floating(t->dtype()) ? ones(t->shape(), t->dtype()) : zeros(t->shape(), t->dtype());
  }
  std::ranges::fill(batch.targets_BT.span<i32>(), kPaddingTarget);
  const double loss = session.rank().evaluate(batch);
  if (loss == 0) return;
  throw Error(
      ErrorCode::usage,
      fmt::format(
          "[model] expected a loss of 0 for rows of padding, which fill up the last step of an epoch, got {}: let the last "
          "block return Context::loss() of the losses of its rows (a loss with targets: leave out negative ones), or set drop_last and "
          "validate on whole micro-batches",
          loss));
}

}  // namespace spillway::trainer
