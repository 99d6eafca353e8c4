// Reads the repository's source files for the law tests, and strips comments and literals from their code. A "room" is a source folder that
// CMake builds as one library.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

namespace spillway::laws {

struct Source {
  std::string path;  // path of the file from the repository's root, such as "src/base/error.h"
  std::string text;
};

/// Returns every .h, .cc and .cu file of the libraries, tests, bench and examples, sorted by path.
const std::vector<Source>& all_sources();
/// Returns those of all_sources() that belong to a room (a source folder that is one library).
std::vector<Source> room_sources();

/// Returns the lines of a text without their line ends.
std::vector<std::string> lines_of(const std::string& text);
/// Returns `text` with comments blanked and string and character literals emptied; line numbers stay the same.
std::string code_only(const std::string& text);

/// Describes one #include outside of comments: header "tensor/dtype.h", and whether it is quoted.
struct Include {
  int line;
  std::string header;
  bool quoted;
};
std::vector<Include> includes_of(const Source& source);

struct Room {
  std::string folder;                 // folder of the library, such as "src/nn" or "offload"
  std::set<std::string> may_include;  // all libraries that the library may include: itself, and direct and indirect dependencies
};
/// Reads the list of libraries from rooms.txt, which cmake/room.cmake writes.
std::map<std::string, Room> rooms();
/// Returns the innermost library whose folder contains `path`, or "".
std::string room_of(const std::string& path, const std::map<std::string, Room>& rooms);

/// Returns a message with its place: "offload/io_uring.cc:12: what".
std::string at(const Source& source, int line, const std::string& what);
/// Returns all violations, one a line, as a failed law prints them.
std::string joined(const std::vector<std::string>& violations);

}  // namespace spillway::laws
