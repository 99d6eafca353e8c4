// The program that is running, as something to be started again.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

/// Its path: what a bundle's wrapper says of itself, for there the kernel names the loader, or the kernel's word.
std::string own_program();

/// How this process was started, as one would type it.
std::string own_command_line();

/// Runs it with these arguments to its end, what it prints going to `output`; nothing of a launcher that started us reaches it. The exit
/// status, or 128 + the signal that killed it. Throws Error(io) when it does not start.
int run_own_program(const std::vector<std::string>& arguments, const std::string& output);

}  // namespace spillway::app
