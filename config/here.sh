#!/bin/sh
# config/here.sh "75 80 ...": which of these architectures the GPUs here run, with commas; the last
# for GPUs newer than all, as PTX comes with it. Nothing where there is no GPU, or no driver.
set -eu
here=''
told=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true)
for capability in $told; do
    major=${capability%.*} minor=${capability#*.} fits='' last=''
    case $major$minor in '' | *[!0-9]*) continue ;; esac
    for n in $1; do # code runs on later minor numbers of its major one
        last=$n
        [ "${n%?}" != "$major" ] || [ "${n#"$major"}" -gt "$minor" ] || fits=$n
    done
    [ -n "$fits" ] || [ "$major" -le "${last%?}" ] || fits=$last
    case ",$here,," in *",$fits,"*) continue ;; esac # there already, or none
    here="$here${here:+,}$fits"
done
echo "$here"
