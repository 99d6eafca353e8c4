// The files of a checkpoint that DeepSpeed wrote (engine.save_checkpoint), by who wrote them. Functions that look at names alone.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace spillway::data {

struct ZeroFiles {
  std::filesystem::path folder;  // "…/global_step500"
  /// Of one rank of all, or with ZeRO-3 of each.
  std::vector<std::filesystem::path> model_states;
  /// Of each data-parallel rank; empty where `parameters` holds it.
  std::vector<std::filesystem::path> optimizer_states;
  /// Of a universal checkpoint (deepspeed.checkpoint.ds_to_universal): a folder of this name for each parameter.
  std::filesystem::path parameters;
};

/// Whether `folder` is one: a global_step folder, or the one above it whose `latest` names it.
bool is_zero_checkpoint(const std::filesystem::path& folder);

/// Throws Error(data), "[deepspeed] <path>: <why>": files of some ranks are missing, or it was saved in a way that is not read here.
ZeroFiles zero_files(const std::filesystem::path& folder);

/// That error.
[[noreturn]] void reject_zero(const std::filesystem::path& path, const std::string& why);

}  // namespace spillway::data
