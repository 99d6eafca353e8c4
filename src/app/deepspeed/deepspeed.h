// A configuration of DeepSpeed's as flags of train: each of its keys becomes a flag, is said to have no part here, or is refused. What a
// file leaves out is as DeepSpeed has it (no clipping, fp32; with an optimizer in it a constant rate and weight decay of every parameter);
// "auto" is what transformers' Trainer would fill in: what the flags say, and else their defaults. Pure functions but for the file.
#pragma once
#include <string>
#include <vector>

#include "app/flags/given.h"

namespace spillway::app {

struct DeepspeedFlags {
  GivenMap given;
  std::vector<std::string> notes;  // what has no part, what differs: a line each
};

/// Throws Error(usage): a file that cannot be read, no JSON object, a key twice or unknown (naming the nearest), a value of the wrong type,
/// a key that asks for what there is not (naming what there is).
DeepspeedFlags read_deepspeed_file(const std::string& path);
/// The same from its text; `where` names it in messages.
DeepspeedFlags read_deepspeed_text(const std::string& text, const std::string& where);

/// The flags, and what --config's and --deepspeed's files say beside them: flags win, then --config. Adds the notes of the latter.
GivenMap with_files(Command command, const GivenMap& flags, std::vector<std::string>& notes);

}  // namespace spillway::app
