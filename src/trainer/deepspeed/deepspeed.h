// Translates a DeepSpeed configuration file into flags of `train`. Each key of the file becomes a flag, is reported to have no
// effect, or is refused. Keys that the file does not set have DeepSpeed's defaults (no clipping, fp32; if the file has an optimizer,
// a constant learning rate and weight decay of every parameter). The value "auto", which transformers' Trainer would fill in, means
// the value of the corresponding flag, or the flag's default. All functions are pure, except that they read the file.
#pragma once
#include <string>
#include <vector>

#include "trainer/settings/given.h"

namespace spillway::trainer {

struct DeepspeedFlags {
  GivenMap given;
  std::vector<std::string> notes;  // a line for each key that has no effect, or not the same effect as in DeepSpeed
};

/// Reads and translates a file. Throws Error(usage) if the file cannot be read or is not a JSON object, if a
/// key occurs twice or is unknown (the message names the nearest known key), if a value has the wrong type,
/// and if a key asks for a feature that Spillway does not have (the message names what to use instead).
DeepspeedFlags read_deepspeed_file(const std::string& path);
/// Translates the text of a file as read_deepspeed_file() does. `where` names the file in messages.
DeepspeedFlags read_deepspeed_text(const std::string& text, const std::string& where);

/// Returns `flags` merged with the files that --config and --deepspeed name. If an option is given in several places, the flag has
/// precedence over the file of --config, and that file over the DeepSpeed file. `notes` receives the notes on the DeepSpeed file.
GivenMap with_files(Command command, const GivenMap& flags, std::vector<std::string>& notes);

}  // namespace spillway::trainer
