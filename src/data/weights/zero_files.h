// Finds the files of a DeepSpeed checkpoint (engine.save_checkpoint) and sorts them by the rank that
// wrote them. Only file names and the file `latest` are examined; checkpoint files are not opened.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace spillway::data {

struct ZeroFiles {
  std::filesystem::path folder;  // the checkpoint's folder, such as "…/global_step500"
  /// The files of the model states: one file, or with ZeRO-3 one file per rank.
  std::vector<std::filesystem::path> model_states;
  /// The optimizer states of each data-parallel rank. The list is empty if `parameters` holds the states.
  std::vector<std::filesystem::path> optimizer_states;
  /// The folder of a universal checkpoint (deepspeed.checkpoint.ds_to_universal) that
  /// has one sub-folder for each parameter. A sub-folder has the parameter's name.
  std::filesystem::path parameters;
};

/// Returns true if `folder` is a global_step folder of a DeepSpeed checkpoint, or the folder above it, in which a file `latest` names the
/// global_step folder.
bool is_zero_checkpoint(const std::filesystem::path& folder);

/// Lists the files of a checkpoint. Throws Error(data) "[deepspeed] <path>: <why>" if files
/// of some ranks are missing or if the checkpoint was saved in a way that is not supported.
ZeroFiles zero_files(const std::filesystem::path& folder);

/// Throws Error(data) "[deepspeed] <path>: <why>".
[[noreturn]] void reject_zero(const std::filesystem::path& path, const std::string& why);

}  // namespace spillway::data
