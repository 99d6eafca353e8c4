// Knows the names that other programs use for commands, flags and values, so that messages can name those of this program. All functions
// are pure, thus thread-safe. They return an empty text for a name that they do not know.
#pragma once
#include <string>
#include <string_view>

#include "trainer/settings/option.h"

namespace spillway::trainer {

/// Returns the option of `command` that does what `theirs`, a flag of another program in lower case with dashes, does there. The option's
/// value may follow: "precision bf16".
std::string_view option_for(Command command, std::string_view theirs);
/// Returns the same for a flag of one or two letters after a single dash, such as llm.c's "b".
std::string_view option_for_short(Command command, std::string_view theirs);
/// Returns what to do instead of giving the flag `theirs`, which corresponds to no single option.
std::string advice_for(Command command, std::string_view theirs);
/// Returns this program's command for the name that another program gives it, such as "finetune".
std::string_view command_for(std::string_view theirs);
/// Returns what to write for the value `theirs` of an option, in lower case with dashes, such as "bf16" for "bfloat16" of precision. Flags
/// may follow the value. The options place-parameters, place-gradients, place-optimizer and place-activations share the name "place".
std::string_view value_for(std::string_view option, std::string_view theirs);

}  // namespace spillway::trainer
