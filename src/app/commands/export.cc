// spillway export: a run's or a checkpoint's weights as a Hugging Face folder. Streamed; the same weights give the same bytes.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/run/model_source.h"
#include "base/error.h"
#include "data/atomic_folder.h"
#include "models/export.h"

namespace spillway::app {

int run_export(const ExportConfig& config, Console& console) {
  const ModelSource source = find_trained_model(config.model, config.checkpoint);
  if (!source.has_weights) throw Error(ErrorCode::usage, fmt::format("[export] {} has no weights to export", config.model));
  if (std::filesystem::exists(config.out)) {
    throw Error(ErrorCode::usage, fmt::format("[export] {} exists already: give a new folder, nothing is overwritten", config.out));
  }
  data::AtomicFolder folder(config.out);
  const models::ExportResult written =
      models::export_folder(source.config, *source.folder, folder.path(), config.dtype, config.max_shard_size_bytes);
  folder.commit();
  if (console.json()) {
    const nlohmann::ordered_json all = {{"out", config.out}, {"tensors", written.tensors}, {"files", written.files}};
    console.result(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return 0;
  }
  console.result(
      fmt::format("exported {} tensors in {} file{} to {}", written.tensors, written.files, written.files == 1 ? "" : "s", config.out));
  if (!source.config.reads_images())
    console.result(fmt::format("in Python: transformers.AutoModelForCausalLM.from_pretrained(\"{}\")", config.out));
  return 0;
}

}  // namespace spillway::app
