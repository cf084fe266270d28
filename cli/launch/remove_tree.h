#pragma once

/* Removes a folder and all in it, as far as that is possible. Follows no link. */
void cli_remove_tree(const char *path);
