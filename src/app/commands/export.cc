// Implements `spillway export`, which writes the weights of a run or a checkpoint as a Hugging Face
// folder, an ONNX graph or a GGUF file. The weights are streamed, and equal weights give equal bytes.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "base/error.h"
#include "data/files/atomic_folder.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/hugging_face/train_bpe.h"
#include "models/export/folder.h"
#include "models/gguf/export_gguf.h"
#include "models/onnx/export.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/generation_ends.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/checkpoints/python_line.h"
#include "trainer/checkpoints/tokenizer_files.h"
#include "trainer/node/grant.h"
#include "trainer/node/host.h"
#include "trainer/run/data_sources.h"
#include "trainer/settings/text.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::app {
namespace {

// Returns the folder with the model's tokenizer. This is the adapter's folder if it has a tokenizer, otherwise the model's.
std::optional<std::filesystem::path> tokenizer_folder(const ModelSource& source) {
  for (const auto& place : {source.adapter, source.folder}) {
    if (place && std::filesystem::exists(*place / "tokenizer.json")) return place;
  }
  return {};
}

// Returns whether the model was trained on bytes: this program made it without a tokenizer, and it has no more tokens than there are bytes
// or its run was trained on text. Without a tokenizer, token files may have been made with any.
bool reads_bytes(const ModelSource& source) {
  const std::filesystem::path checkpoint = source.adapter ? *source.adapter : *source.folder;
  if (source.config.reads_images() || tokenizer_folder(source) || !std::filesystem::exists(checkpoint / kStateName)) return false;
  if (source.config.vocabulary == data::ByteTokenizer::kVocabulary) return true;
  const auto run = read_whole(checkpoint.parent_path().parent_path() / "config.json");
  return run && any_text(weighted_paths(run_config(*run).data).paths);
}

models::ExportResult write_gguf(const ModelSource& source, const models::PlainModel& model, const std::filesystem::path& folder,
                                const std::optional<std::string>& dtype, Console& console) {
  models::GgufTokenizer tokenizer{tokenizer_folder(source)};
  if (const auto ends = generation_ends(source)) tokenizer.more_ends = *ends;
  tokenizer.bytes = reads_bytes(source) && model.config().vocabulary == data::ByteTokenizer::kVocabulary;
  const models::GgufExport written = models::export_gguf(model, source.name, tokenizer, folder / "model.gguf", dtype);
  for (const std::string& note : written.notes) console.log("gguf: " + note);
  return {written.tensors, 1};
}

// Returns the folder from which an export copies the parts that are not the language model, if there are any.
std::optional<std::filesystem::path> whole_of(const ModelSource& source, Console& console) {
  if (!source.whole || std::filesystem::exists(*source.whole / "config.json")) return source.whole;
  console.log(fmt::format("export: {} is no longer there, so the language model is exported without the other parts of its model",
                          source.whole->string()));
  return {};
}

// Copies the settings of image and video processors, which belong to the parts that are not the language model.
void copy_processors(const ModelSource& source, const std::filesystem::path& to) {
  if (!source.whole) return;
  for (const char* name : {"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"}) {
    if (std::filesystem::is_regular_file(*source.whole / name)) std::filesystem::copy_file(*source.whole / name, to / name);
  }
}

// Returns the line of code or the command that loads the exported files.
std::string loading_line(const models::ModelConfig& config, bool adapter, const ExportConfig& asked) {
  if (asked.format == "gguf") return "in llama.cpp: llama-cli -m " + shell_word((std::filesystem::path(asked.out) / "model.gguf").string());
  const std::string line = python_line(config, adapter, asked.format, asked.out);
  return line.empty() ? "" : "in Python: " + line;
}

}  // namespace

int run_export(const ExportConfig& config, Console& console) {
  const ModelSource source = find_trained_model(config.model, config.checkpoint);
  if (!source.has_weights) throw Error(ErrorCode::usage, fmt::format("[export] {} has no weights to export", config.model));
  if (config.merge && !source.adapter)
    throw Error(
        ErrorCode::usage,
        fmt::format("[--merge] expected a run or a checkpoint with adapters, got {}, which has none: leave --merge out", config.model));
  std::optional<std::filesystem::path> averages;
  if (config.ema) {
    averages = (source.adapter ? *source.adapter : *source.folder) / kStateName;
    if (!std::filesystem::exists(*averages)) {
      throw Error(ErrorCode::usage,
                  fmt::format("[--ema] expected a run or a checkpoint of train --ema, got {}, which has no averages: leave --ema out",
                              config.model));
    }
  }
  const bool adapter = source.adapter && !config.merge;
  if (adapter && config.format != "hf") {
    throw Error(ErrorCode::usage, fmt::format("[--format] expected hf to export adapters without their base model, got {}: add --merge to "
                                              "export the merged model, or leave --format out",
                                              config.format));
  }
  data::AtomicFolder folder(config.out, data::Existing::refuse);
  for (const std::string& note : source.notes) console.log("model: " + note);
  const OnAllCores all_cores;
  const models::ExportResult written = [&] {
    if (adapter) return models::export_adapter(source.config, *source.adapter, source.reference, folder.path(), config.dtype, averages);
    const models::PlainModel model(source.config, *source.folder, source.adapter, averages);
    if (config.format == "gguf") return write_gguf(source, model, folder.path(), config.dtype, console);
    if (config.format == "onnx") return models::export_onnx(model, folder.path(), config.dtype);
    return models::export_folder(model, folder.path(), config.dtype, config.max_shard_size_bytes, whole_of(source, console));
  }();
  if (config.format != "gguf") {  // a GGUF file contains the tokenizer itself
    for (const auto& [name, text] : model_files(source, tokenizer_folder(source))) folder.write_text(name, text);
    if (config.format == "hf" && !adapter) copy_processors(source, folder.path());
    if (reads_bytes(source)) {
      const data::TrainedTokenizer bytes = data::byte_tokenizer_files();
      folder.write_text("tokenizer.json", bytes.tokenizer_json);
      folder.write_text("tokenizer_config.json", bytes.tokenizer_config_json);
    }
  }
  folder.commit();
  if (console.json()) {
    const nlohmann::ordered_json all = {{"out", config.out}, {"tensors", written.tensors}, {"files", written.files}};
    console.result(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return 0;
  }
  console.result(
      fmt::format("exported {} tensors in {} file{} to {}", written.tensors, written.files, written.files == 1 ? "" : "s", config.out));
  if (const std::string line = loading_line(source.config, adapter, config); !line.empty()) console.result(line);
  return 0;
}

}  // namespace spillway::app
