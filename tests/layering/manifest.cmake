# SPDX-License-Identifier: Apache-2.0
#
# Writes components.txt: for each component and each part of a component, the targets to which it is
# linked and its include directories.
get_property(parts GLOBAL PROPERTY XYLEM_PARTS)
set(manifest)
foreach(part IN LISTS parts)
  string(REGEX REPLACE "^xylem_" "" name ${part})
  string(APPEND manifest "${name}"
    "|$<TARGET_PROPERTY:${part},LINK_LIBRARIES>|$<TARGET_PROPERTY:${part},INCLUDE_DIRECTORIES>\n")
endforeach()
file(GENERATE OUTPUT components.txt CONTENT "${manifest}")
