// The one error dialect. Whoever cannot go on throws Error(code, "[op] expected …, got …, where, how to mend it"); only src/app catches it,
// prints it and turns the code into the exit status. Thread-safe: a value.
#pragma once
#include <stdexcept>
#include <string>

namespace spillway {

/// What kind of failure it is; the number is the program's exit status.
enum class ErrorCode {
  bug = 1,      // a promise inside the program is broken
  usage = 2,    // the command line or the configuration is wrong
  refused = 3,  // it would not fit; nothing was touched
  data = 4,     // data or checkpoint unreadable, corrupt, or newer than this program
  io = 5,       // an I/O or device failure, or memory refused by the system
  peer = 6,     // another rank died or hung
  numbers = 7,  // the numbers failed
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_status() const { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

/// Throws Error(bug) with `what` unless `holds`: for promises between rooms, in every build.
inline void require(bool holds, const char* what) {
  if (!holds) throw Error(ErrorCode::bug, what);
}

}  // namespace spillway
