# plots.sed - gnuplot's SVG in a third of its bytes, for sed -z -E -f
#
# gnuplot opens a group for each stroke, defines unused markers, and repeats the
# font with each text.  Nothing visible is dropped, but positions are rounded to
# a tenth of a pixel.

s/[ \t\n]+/ /g
s/> </></g
s/^<\?xml[^>]*>//
s/<title>Gnuplot<\/title>//
s/<desc>[^<]*<\/desc>//
s/<title>[^<]*<\/title>//g
s/<defs>.*<\/defs>//
s/ xmlns:xlink="[^"]*"/ font-family="sans-serif" font-size="12"/
s/ id="gnuplot[^"]*" ?//g
s/ class="gridline"//g
s/ stroke-linecap="butt" stroke-linejoin="miter"//g
s/rgb\( *([0-9]+), *([0-9]+), *([0-9]+)\)/rgb(\1,\2,\3)/g
s/<use xlink:href='#gpPt6' transform='translate\(([^,]*),([^)]*)\) scale\(([^)]*)\)' color='([^']*)'\/>/<circle cx='\1' cy='\2' r='\3' fill='\4' stroke='none'\/>/g
s/ color="[a-zA-Z#0-9]+" stroke="currentColor"/ stroke="black"/g
s/ color="[a-zA-Z#0-9]+" stroke=/ stroke=/g
s/<g transform="translate\(([^,]*),([^)]*)\)" stroke="none" fill="([^"]*)" font-family="[^"]*" font-size="([^"]*)" text-anchor="([a-z]*)"><text>(<tspan[^>]*>)([^<]*)<\/tspan><\/text><\/g>/<text x="\1" y="\2" stroke="none" fill="\3" font-size="\4" text-anchor="\5">\7<\/text>/g
s/<g (transform="[^"]*") stroke="none" fill="([^"]*)" font-family="[^"]*" font-size="([^"]*)" text-anchor="([a-z]*)"><text>(<tspan[^>]*>)([^<]*)<\/tspan><\/text><\/g>/<text \1 stroke="none" fill="\2" font-size="\3" text-anchor="\4">\6<\/text>/g
s/ font-size="12.00"//g

# Numbers in attributes; unlike those of texts they do not follow a ">"
s/([- ,"'(ML])([0-9]+\.[0-9])[0-9]+/\1\2/g
s/([- ,"'(ML][0-9]+)\.0([^0-9])/\1\2/g
s/ +'/'/g

# A bar is a polygon and a path around it
s/<g stroke='none' shape-rendering='crispEdges'><polygon fill ='([^']*)' fill-opacity ='([^']*)' points ='([^']*)'\/><\/g><path stroke='\1' d='[^']*'\/>/<polygon fill='\1' stroke='\1' fill-opacity='\2' points='\3'\/>/g

# Empty groups, and successive groups with the same attributes
:groups
s/<g [^<>]*><\/g>//g
s/<g>((<(path|text|circle|rect|polygon)[^<>]*>([^<]*<\/text>)?)*)<\/g>/\1/g
t groups
:same
s/<g ([^<>]*)>((<(path|text|circle|rect|polygon)[^<>]*>([^<]*<\/text>)?)*)<\/g><g \1>/<g \1>\2/
t same

# Most strokes are black and one wide: the outermost group sets this.
s/<g><rect ([^<>]*)\/>/<g fill="none" stroke="black" stroke-width="1"><rect \1 stroke="none"\/>\n/
:plain
s/\n(.*)<g fill="none" stroke="black" stroke-width="1">((<(path|text|circle|rect|polygon)[^<>]*>([^<]*<\/text>)?)*)<\/g>/\n\1\2/
t plain
s/<g fill="none" stroke="black" stroke-width="0.5"><path ([^<>]*)><\/g>/<path stroke-width='0.5' \1>/g
s/\n//

s/></>\n</g
s/>\n<\/text>/><\/text>/g
s/ *$/\n/
