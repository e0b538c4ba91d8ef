# SPDX-License-Identifier: Apache-2.0
#
# The library that users link, made of all components. xylem::xylem is a shared library; its users need no
# other libraries. xylem::static is an archive; its users also link the libraries that Xylem uses
# (find_package(xylem COMPONENTS static) finds them).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

add_library(xylem_shared SHARED)
add_library(xylem_static STATIC)
add_library(xylem::xylem ALIAS xylem_shared)
add_library(xylem::static ALIAS xylem_static)

# Collects `parts`, which are the components and the targets of Xylem that they link, and `externals`, which are the
# other libraries.
get_property(components GLOBAL PROPERTY XYLEM_COMPONENTS)
set(parts)
set(externals)
list(TRANSFORM components PREPEND xylem:: OUTPUT_VARIABLE queue)
while(queue)
  list(POP_FRONT queue target)
  get_target_property(part ${target} ALIASED_TARGET)
  if(part IN_LIST parts)
    continue()
  endif()
  list(APPEND parts ${part})
  get_target_property(links ${part} LINK_LIBRARIES)
  foreach(link IN LISTS links)
    if(link MATCHES "^xylem::")
      list(APPEND queue ${link})
    elseif(link)
      list(APPEND externals ${link})
    endif()
  endforeach()
endwhile()
list(REMOVE_DUPLICATES externals)
set_property(GLOBAL PROPERTY XYLEM_PARTS ${parts})
foreach(library xylem_shared xylem_static)
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  target_sources(${library} PRIVATE ${objects})
  target_link_libraries(${library} PRIVATE ${externals})
endforeach()

# The public headers: <xylem/xylem.h>, <xylem/xylem_c.h> and the headers that they include. The name of each file set
# contains its component, so that the names differ.
set(public_components base runtime c)
foreach(component IN LISTS public_components)
  if(NOT component IN_LIST components)
    continue()
  endif()
  get_target_property(sets xylem_${component} INTERFACE_HEADER_SETS)
  foreach(set IN LISTS sets)
    get_target_property(directories xylem_${component} HEADER_DIRS_${set})
    get_target_property(files xylem_${component} HEADER_SET_${set})
    foreach(library xylem_shared xylem_static)
      target_sources(${library} PUBLIC FILE_SET ${component}_${set} TYPE HEADERS
        BASE_DIRS ${directories} FILES ${files})
    endforeach()
    list(APPEND file_sets FILE_SET ${component}_${set} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endforeach()
endforeach()

foreach(library xylem_shared xylem_static)
  target_compile_features(${library} INTERFACE cxx_std_20)
  xylem_target_defaults(${library})
endforeach()
set_target_properties(xylem_shared PROPERTIES
  EXPORT_NAME xylem
  OUTPUT_NAME xylem
  LINKER_LANGUAGE CXX
  LINK_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/xylem.map"
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(xylem_static PROPERTIES
  EXPORT_NAME static
  OUTPUT_NAME xylem
  LINKER_LANGUAGE CXX)
# A runtime has a thread, and leaves the job when the process ends, so its code must stay loaded. With this option,
# dlclose() unloads neither the library nor a plugin that contains the archive.
set(stays_loaded LINKER:-z,nodelete)
target_link_options(xylem_static INTERFACE ${stays_loaded})
target_link_options(xylem_shared PRIVATE ${stays_loaded}
  "LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/xylem.map"
  # With Clang, the program contains the sanitizer's runtime, so symbols of the library stay undefined.
  $<$<STREQUAL:${XYLEM_SANITIZE},>:LINKER:--no-undefined>)

if(NOT XYLEM_INSTALL)
  return()
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/xylem")
install(TARGETS xylem_shared EXPORT xylemTargets ${file_sets})
install(TARGETS xylem_static EXPORT xylemStaticTargets ${file_sets})
install(EXPORT xylemTargets NAMESPACE xylem:: DESTINATION ${package_dir})
install(EXPORT xylemStaticTargets NAMESPACE xylem:: DESTINATION ${package_dir})

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/xylemConfig.cmake.in" xylemConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(xylemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/xylemConfig.cmake" "${PROJECT_BINARY_DIR}/xylemConfigVersion.cmake"
  DESTINATION ${package_dir})

# The prefix is relative to the file xylem.pc, so that the installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
# The libraries that users of the archive also link. They are not in Requires.private, since pkg-config would then
# require their packages from users of the shared library, too.
set(pc_private_libraries)
foreach(external IN LISTS externals)
  if(external MATCHES "^(PkgConfig|fmt|hwy|pugixml)::(.+)$")
    list(APPEND pc_private_libraries -l${CMAKE_MATCH_2})
  elseif(NOT external MATCHES "::")
    list(APPEND pc_private_libraries -l${external})
  endif()
endforeach()
list(APPEND pc_private_libraries -pthread -lstdc++ -lm -Wl,-z,nodelete)
list(JOIN pc_private_libraries " " pc_private_libraries)
configure_file("${CMAKE_CURRENT_LIST_DIR}/xylem.pc.in" xylem.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/xylem.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
