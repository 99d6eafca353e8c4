// Implements `spillway import`, which converts weights that other programs wrote to a Hugging
// Face folder. The weights are streamed, and the folder appears complete or not at all.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "base/error.h"
#include "data/files/atomic_folder.h"
#include "models/export/folder.h"
#include "models/import.h"
#include "trainer/checkpoints/python_line.h"
#include "trainer/node/grant.h"

namespace spillway::app {
namespace {

// Returns what the user must know to use the imported model and cannot see from its folder.
std::string import_note(const models::ModelConfig& config) {
  if (!config.reads_images()) return "the folder has no tokenizer: give train and generate the tokenizer.json of GPT-2 with --tokenizer";
  return "here a pixel p becomes (p / 255 - 0.5) / 0.5, but torchvision trained with ImageNet's mean and standard deviation: "
         "train for some steps before you trust the model's predictions";
}

}  // namespace

int run_import(const ImportConfig& config, Console& console) {
  const models::ImportedModel imported = models::imported_model(config.file, config.as);
  const models::PlainModel model(imported.config, config.file);
  data::AtomicFolder folder(config.out, data::Existing::refuse);
  const OnAllCores all_cores;
  const models::ExportResult written = models::export_folder(model, folder.path(), {}, config.max_shard_size_bytes);
  folder.commit();
  console.log(import_note(imported.config));
  if (console.json()) {
    const nlohmann::ordered_json all = {
        {"out", config.out}, {"model", imported.kind}, {"tensors", written.tensors}, {"files", written.files}};
    console.result(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return 0;
  }
  console.result(fmt::format("imported {}, {} tensors in {} file{}, to {}", imported.kind, written.tensors, written.files,
                             written.files == 1 ? "" : "s", config.out));
  if (const std::string line = python_line(imported.config, false, "hf", config.out); !line.empty()) console.result("in Python: " + line);
  return 0;
}

}  // namespace spillway::app
