# Runs in cpack, before each package is packed: what Debian wants beside the installed files.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, where that is set
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root "${CPACK_TEMPORARY_DIRECTORY}/${component}")
  if(NOT IS_DIRECTORY "${root}")
    continue()
  endif()
  set(doc "${root}/usr/share/doc/${name}")
  file(WRITE "${doc}/copyright"
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Spillway

Files: *
Copyright: 2026 The Spillway developers
License: Apache-2.0
 On Debian systems the full text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
")
  file(WRITE "${doc}/changelog.Debian"
"${name} (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Packaged from the install tree; what is new is in changelog.gz.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  file(COPY_FILE "${SPILLWAY_SOURCE}/CHANGELOG.md" "${doc}/changelog")
  file(GLOB pages "${root}/usr/share/man/man1/*.1")
  execute_process(COMMAND gzip -9nf "${doc}/changelog" "${doc}/changelog.Debian" ${pages} COMMAND_ERROR_IS_FATAL ANY)
  if(component STREQUAL "program")
    file(COPY "${SPILLWAY_SOURCE}/docs" "${SPILLWAY_SOURCE}/README.md" DESTINATION "${doc}")
  endif()
  file(GLOB_RECURSE folders LIST_DIRECTORIES true "${root}/usr/*")
  foreach(folder "${root}/usr" ${folders})
    if(IS_DIRECTORY "${folder}")
      file(CHMOD "${folder}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    endif()
  endforeach()
endforeach()
