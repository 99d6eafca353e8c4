// Defines Error, the exception type of the whole project. Code that cannot go on throws Error(code, "[op] expected …, got …, where, how
// to mend it"). Only src/app catches an Error, prints it and turns the code into the exit status. Error is a value type and thread-safe.
#pragma once
#include <stdexcept>
#include <string>

namespace spillway {

/// The kind of a failure. Its number is also the program's exit status.
enum class ErrorCode {
  bug = 1,      // an internal invariant is broken
  usage = 2,    // the command line or the configuration is wrong
  refused = 3,  // the job would not fit; nothing was changed
  data = 4,     // data or a checkpoint is unreadable, corrupt, or newer than this program
  io = 5,       // an I/O operation or a device failed, or the system refused memory
  peer = 6,     // another rank died or hung
  numbers = 7,  // the computation failed numerically
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_status() const { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

/// Throws Error(ErrorCode::bug, what) if `holds` is false. require() checks contracts between modules, in debug and release builds alike.
inline void require(bool holds, const char* what) {
  if (!holds) throw Error(ErrorCode::bug, what);
}

}  // namespace spillway
