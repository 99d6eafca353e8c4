// Translates a DeepSpeed configuration file into flags of `train`. Each of its keys becomes a flag, is reported to have no effect here, or
// is refused. Keys that the file leaves out have DeepSpeed's defaults (no clipping, fp32; if the file has an optimizer, a constant learning
// rate and weight decay of every parameter). The value "auto", which transformers' Trainer would fill in, stands for what the flags say, or
// else their defaults. Pure functions, except that they read the file.
#pragma once
#include <string>
#include <vector>

#include "app/names.h"
#include "trainer/settings/given.h"

namespace spillway::app {

struct DeepspeedFlags {
  GivenMap given;
  std::vector<std::string> notes;  // a line for each key that has no effect here, or a different one than in DeepSpeed
};

/// Reads and translates a file. Throws Error(usage) if the file cannot be read or is not a JSON object, if a key occurs twice or is unknown
/// (the message names the nearest known key), if a value has the wrong type, and if a key asks for a feature that is not there (the message
/// names what can be used instead).
DeepspeedFlags read_deepspeed_file(const std::string& path);
/// Does the same with the file's text; `where` names the file in messages.
DeepspeedFlags read_deepspeed_text(const std::string& text, const std::string& where);

/// Returns `flags` merged with the files that --config and --deepspeed name. If several give the same option, the flag takes precedence,
/// then the file of --config. `notes` receives the notes on the DeepSpeed file.
GivenMap with_files(Command command, const GivenMap& flags, std::vector<std::string>& notes);

}  // namespace spillway::app
