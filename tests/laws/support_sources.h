// What the laws read: the repository's source files, and code without its comments and literals. Test code only.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

namespace spillway::laws {

struct Source {
  std::string path;  // from the repository's root, for example "src/base/error.h"
  std::string text;
};

/// Every .h .cc .cu of the rooms, tests, bench and examples, sorted by path.
const std::vector<Source>& all_sources();
/// The part of them that lies in a room.
std::vector<Source> room_sources();

/// Lines without their ends.
std::vector<std::string> lines_of(const std::string& text);
/// `text` with comments blanked and string and character literals emptied; line numbers stay.
std::string code_only(const std::string& text);

/// {"tensor/dtype.h", quoted} for each #include, outside comments.
struct Include {
  int line;
  std::string header;
  bool quoted;
};
std::vector<Include> includes_of(const Source& source);

struct Room {
  std::string folder;                 // "src/nn", "offload"
  std::set<std::string> may_include;  // rooms, itself among them, transitively
};
/// From rooms.txt, which cmake/room.cmake writes.
std::map<std::string, Room> rooms();
/// The innermost room whose folder `path` lies in, or "".
std::string room_of(const std::string& path, const std::map<std::string, Room>& rooms);

/// "offload/io_uring.cc:12: what"
std::string at(const Source& source, int line, const std::string& what);
/// All of them, one a line: what a failed law prints.
std::string joined(const std::vector<std::string>& violations);

}  // namespace spillway::laws
